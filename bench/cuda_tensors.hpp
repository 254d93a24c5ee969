#pragma once

// The tensors of the CUDA benchmark, with many copies of each, so that no call
// finds its input in the L2 cache.

#include "syncnorm/tensor_view.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncnorm::bench {

inline void require_success(cudaError_t status) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string{"CUDA: "}
                             + cudaGetErrorString(status));
}

/// Device memory, filled with one byte value.
class device_memory {
public:
  explicit device_memory(std::size_t bytes, int fill = 0) {
    require_success(cudaMalloc(&data_, bytes));
    require_success(cudaMemset(data_, fill, bytes));
  }
  ~device_memory() {
    (void) cudaFree(data_);
  }
  device_memory(device_memory&& other) noexcept : data_{other.data_} {
    other.data_ = nullptr;
  }
  device_memory(const device_memory&) = delete;
  device_memory& operator=(const device_memory&) = delete;

  [[nodiscard]] void* data() const {
    return data_;
  }

private:
  void* data_ = nullptr;
};

/// A shape from the table in the kernels' issue.
struct bench_shape {
  std::int64_t samples, channels, height, width;
};

/// How many replicas' moments are merged.
constexpr int bench_parts = 8;

/// The distribution of each channel's elements. No two channels are alike, so
/// that using another channel's numbers shows.
struct channel_values {
  explicit channel_values(std::int64_t channels);

  std::vector<float> mean, deviation, weight, bias;
};

/// One layer's tensors and arrays, with `copies` copies of the tensors.
class bench_tensors {
public:
  /// @param copies  of each tensor: together they exceed three times the L2
  ///                cache.
  bench_tensors(const bench_shape& shape, dtype type, memory_format format,
                int copies);

  /// Overwrites the results of earlier calls, in the outputs of number 0 and
  /// the arrays, by NaN, and by 0 in the running statistics.
  void clear_results() const;

  bench_shape shape;
  tensor_layout layout;
  std::size_t bytes;
  std::vector<device_memory> x, dy, out;
  /// C float32 each, read.
  device_memory mean, inv_std, weight, bias, sum_dy, sum_dy_xmu;
  /// C float32 each, written.
  device_memory running_mean, running_var;
  std::vector<device_memory> arrays;
  /// [8, C] float32 each, and 8 counts: moments of eight replicas. We take M2;
  /// libtorch takes the same as inverse standard deviations.
  device_memory part_means, part_m2s, part_inv_stds, part_counts;
  /// One replica's count, as int32.
  device_memory total_count;
  device_memory scratch;
  std::size_t scratch_bytes;

private:
  bench_tensors(const bench_shape& shape, dtype type, memory_format format,
                int copies, const channel_values& values);
};

} // namespace syncnorm::bench
