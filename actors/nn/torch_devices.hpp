#pragma once

// How tensors on CUDA devices are reached: the runtime that the kernels use
// there, and libtorch's streams.

#include "syncnorm/device.hpp"
#include "syncnorm/device_array.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <string>

namespace syncnorm::nn::detail {

/// How a build reaches CUDA devices, or why it does not.
struct device_access {
  /// Null if it does not.
  device_runtime* runtime = nullptr;
  /// The stream of this thread's operations on a device, as the runtime knows
  /// it.
  void* (*current_stream)(std::int32_t index) = nullptr;
  /// For an error text: what is missing.
  std::string missing;
};

/// What this build has: decided by the libtorch and the kernels that it is
/// compiled with.
[[nodiscard]] device_access access_of_build();

/// The access in use: that of the build, unless a test has replaced it.
[[nodiscard]] device_access& access_in_use();

/// The core's name of a device. libtorch's "cuda" without an index is the
/// current device.
[[nodiscard]] device to_device(const at::Device& where);

/// Nothing if tensors on `where` can be used, or else the error text.
[[nodiscard]] std::optional<std::string> why_unusable(const at::Device& where);

/// How many CUDA devices libtorch shows.
[[nodiscard]] std::int32_t cuda_device_count() noexcept;

/// The stream on which this thread's libtorch operations run on `where`; no
/// stream for a CPU.
/// @throws error `device_unavailable`.
[[nodiscard]] device_stream current_stream(const at::Device& where);

/// The same as libtorch's own type of stream; nothing for a CPU.
[[nodiscard]] std::optional<c10::Stream>
current_torch_stream(const at::Device& where);

/// A copy of a contiguous vector on a device, published on the stream of this
/// thread, for a message.
[[nodiscard]] device_array to_array(const at::Tensor& x);

/// A tensor with the elements of `x`, which is on the device of `options` and
/// of their dtype.
[[nodiscard]] at::Tensor to_tensor(const device_array& x,
                                   const at::TensorOptions& options);

/// Overwrites the vector `to` with the elements of `x` from `first` on, in the
/// order of the stream of this thread, as an operation in place.
void overwrite(const at::Tensor& to, const device_array& x, std::size_t first);

} // namespace syncnorm::nn::detail
