#pragma once

// libtorch's operators for synchronized batch norm on the same memory, in a
// build that found a libtorch with CUDA.

#include "bench/cuda_check.hpp"
#include "bench/cuda_tensors.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace syncnorm::bench {

/// The five operators; each call takes the copies of number `i`, runs on the
/// default stream and allocates its results as libtorch does. Results are kept
/// until the next call with their number: the memory of one dropped at once,
/// still in the L2 cache, would serve the next.
class peer {
public:
  virtual ~peer() = default;
  virtual void stats(std::size_t i) = 0;
  virtual void gather_stats(std::size_t i) = 0;
  virtual void elemt(std::size_t i) = 0;
  virtual void backward_reduce(std::size_t i) = 0;
  virtual void backward_elemt(std::size_t i) = 0;
  /// The results of the last call, which was for number 0.
  [[nodiscard]] virtual results made(operation by) const = 0;
};

/// Returns the operators over `tensors`, or null in a build without libtorch.
[[nodiscard]] std::unique_ptr<peer> make_peer(const bench_tensors& tensors);

/// libtorch's version, or "none".
[[nodiscard]] std::string peer_version();

} // namespace syncnorm::bench
