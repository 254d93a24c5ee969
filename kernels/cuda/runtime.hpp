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

/// Makes the device of an execution the current one for a scope.
class device_scope {
public:
  /// @throws error `device_unavailable` if the device is not there,
  ///         `device_mismatch` if the stream is of another one (CUDA 12.8 and
  ///         later; before, the launch itself fails), `device_failure`, also
  ///         for what earlier work of the process has done to its devices.
  device_scope(const execution& run, std::string_view operation);

  /// Makes the device current that was before.
  ~device_scope();

  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;

  [[nodiscard]] cudaStream_t stream() const noexcept {
    return stream_;
  }

  /// As the function above, for this operation and device.
  void check(cudaError_t status, std::string_view call) const {
    cuda::check(status, operation_, call, where_);
  }

private:
  void check_stream() const;

  device where_;
  cudaStream_t stream_;
  std::string_view operation_;
  int previous_ = -1;
};

} // namespace syncnorm::cuda
