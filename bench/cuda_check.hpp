#pragma once

// Checks what the CUDA benchmark times, before it does: each side's results are
// those of the library's CPU functions on the same data.

#include "bench/cuda_tensors.hpp"

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncnorm::bench {

/// Tells which side's result differs from the CPU's, and where.
struct wrong_result : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What is compared.
enum class operation {
  moments,
  merge_and_finalize,
  normalize,
  backward_reduce,
  backward_input,
};

/// One side's results for the tensors of number 0, on the device.
struct results {
  /// C float32 each, null for one that this side does not compute: moments:
  /// mean, M2, inverse standard deviation; merge_and_finalize: mean, inverse
  /// deviation, running mean, running variance; backward_reduce: sum of dy, sum
  /// of dy (x - mean), gradients of weight and bias.
  std::vector<const void*> arrays;
  /// In the layout of x; normalize: y; backward_input: dx.
  const void* tensor = nullptr;
};

/// The CPU's results of all operations on the tensors of number 0.
class expectations {
public:
  explicit expectations(const bench_tensors& tensors);

  /// @param least  the tolerance of sums and values derived from them, where it
  ///               is larger than that for the library's own.
  /// @throws wrong_result if `found` differs. The text starts with `who`.
  void check(const std::string& who, operation which, const results& found,
             double least) const;

  /// An array of C numbers, each of which may be off by `unit` of its scale.
  struct expected_array {
    const char* name;
    double unit;
    std::vector<float> values;
    std::vector<double> scale;
  };

  /// Results of one operation; `tensor` is empty if there is none.
  struct expected_results {
    std::vector<expected_array> arrays;
    std::vector<std::byte> tensor;
    /// Relative tolerance: an element is rounded to the tensor's type.
    double rounding = 0;
    /// Absolute tolerance, of the arithmetic in float32.
    double arithmetic = 0;
  };

private:
  void check_tensor(const std::string& who, const expected_results& want,
                    const void* found) const;

  dtype type_;
  std::array<expected_results, 5> by_operation_;
};

} // namespace syncnorm::bench
