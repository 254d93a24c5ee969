#pragma once

// A GPU as a backend under test.

#include "tests/kernels/cuda_library.hpp"

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace syncnorm::testing {

inline void require_success(cudaError_t status) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string{"CUDA: "}
                             + cudaGetErrorString(status));
}

/// Device 0, on a stream of its own.
class cuda_backend : public library_backend {
public:
  cuda_backend() : cuda_backend{new_stream()} {}

  ~cuda_backend() override {
    (void) cudaStreamDestroy(stream());
  }

  [[nodiscard]] cudaStream_t stream() const {
    return static_cast<cudaStream_t>(run().stream);
  }

  [[nodiscard]] void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    require_success(cudaMalloc(&memory, bytes + 1));
    require_success(cudaMemsetAsync(memory, 0xff, bytes, stream()));
    return memory;
  }
  void release(void* memory) override {
    (void) cudaFree(memory);
  }
  void copy_in(void* to, const void* from, std::size_t bytes) override {
    require_success(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()));
    require_success(cudaStreamSynchronize(stream()));
  }
  void copy_out(void* to, const void* from, std::size_t bytes) override {
    require_success(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()));
    require_success(cudaStreamSynchronize(stream()));
  }

private:
  explicit cuda_backend(cudaStream_t stream)
      : library_backend{execution{{device_type::cuda, 0}, stream}} {}

  static cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    require_success(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  }
};

} // namespace syncnorm::testing
