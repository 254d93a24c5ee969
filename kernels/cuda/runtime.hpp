#pragma once

// What every call into the CUDA runtime goes through.

#include "syncnorm/execution.hpp"

#include <cuda_runtime_api.h>

#include <string_view>

namespace syncnorm::cuda {

/// Returns if `status` is `cudaSuccess`.
/// @param call  what was called, for example `"cudaSetDevice"`.
/// @throws error `device_failure`, naming operation, call, device and the CUDA
///         error.
void check(cudaError_t status, std::string_view operation,
           std::string_view call, const device& where);

/// Makes a device the current one for a scope.
class current_device {
public:
  /// Ask `status` whether that worked, and `call` what did not.
  explicit current_device(int index) noexcept;

  /// Makes the previous device current again. One that nobody has used yet is
  /// left alone: making it current would take some hundred MB of its memory.
  ~current_device();

  current_device(const current_device&) = delete;
  current_device& operator=(const current_device&) = delete;

  [[nodiscard]] cudaError_t status() const noexcept {
    return status_;
  }

  [[nodiscard]] std::string_view call() const noexcept {
    return call_;
  }

private:
  int previous_ = -1;
  std::string_view call_ = "cudaGetDevice";
  cudaError_t status_;
};

/// Makes the device of an execution the current one for a scope.
class device_scope {
public:
  /// @throws error `device_unavailable` if the device is not there,
  ///         `device_mismatch` if the stream belongs to another one (CUDA 12.8
  ///         and later; before, and where a graph captures it, the launch
  ///         itself fails), `device_failure`, also for what earlier work of the
  ///         process has done to its devices.
  device_scope(const execution& run, std::string_view operation);

  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;

  [[nodiscard]] cudaStream_t stream() const noexcept {
    return stream_;
  }

  [[nodiscard]] std::string_view operation() const noexcept {
    return operation_;
  }

  [[nodiscard]] int device_index() const noexcept {
    return where_.index;
  }

  /// As the function above, for this operation and device.
  void check(cudaError_t status, std::string_view call) const {
    cuda::check(status, operation_, call, where_);
  }

private:
  /// Returns the index of the device, which is there.
  [[nodiscard]] int available() const;
  void check_stream() const;

  device where_;
  cudaStream_t stream_;
  std::string_view operation_;
  current_device current_;
};

} // namespace syncnorm::cuda
