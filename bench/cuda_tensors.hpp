#pragma once

// The tensors of the CUDA benchmark, many copies of each, so that no call
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

/// A shape of the table in the issue of the kernels.
struct bench_shape {
  std::int64_t samples, channels, height, width;
};

/// One layer's tensors and arrays, `copies` times.
class bench_tensors {
public:
  /// @param copies  of each tensor, so that all of one kind exceed the L2
  ///                cache three times.
  bench_tensors(const bench_shape& shape, dtype type, memory_format format,
                int copies);

  bench_shape shape;
  tensor_layout layout;
  std::size_t bytes;
  std::vector<device_memory> x, dy, out;
  /// C float32 each: parameters and results.
  device_memory mean, inv_std, weight, bias, sum_dy, sum_dy_xmu, weight_grad,
      bias_grad, running_mean, running_var;
  /// [8, C] float32 each, and 8 counts as float32 and as int32: moments of
  /// eight replicas.
  device_memory part_means, part_m2s, part_counts, total_count;
  device_memory scratch;
  std::size_t scratch_bytes;
};

} // namespace syncnorm::bench
