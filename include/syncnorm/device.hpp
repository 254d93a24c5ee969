#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace syncnorm {

/// Kinds of devices.
enum class device_type : std::uint8_t {
  /// Host memory.
  cpu = 0,
  /// Memory of an NVIDIA GPU.
  cuda = 1,
};

/// A place where tensors live and kernels run: `cpu`, `cpu:3`, `cuda:1`.
///
/// The index of a CPU device is a name only, so that several copies of a model
/// on one machine can be told apart: all CPU devices share one memory. The
/// index of a CUDA device is the CUDA runtime's ordinal.
struct device {
  /// Which kind.
  device_type type = device_type::cpu;
  /// Which of that kind, from 0.
  std::int32_t index = 0;

  friend bool operator==(const device&, const device&) = default;
};

/// True if memory of `a` can be used from `b` as it is: the same CUDA device,
/// or two CPU devices whatever their index.
[[nodiscard]] bool same_memory(const device& a, const device& b) noexcept;

/// Returns `"cpu"` (index 0), `"cpu:3"` or `"cuda:1"`.
[[nodiscard]] std::string to_string(const device& where);

/// Reads `cpu`, `cpu:N`, `cuda` (which is `cuda:0`) or `cuda:N`, N from 0 to
/// 32767.
/// @throws error `invalid_argument`, naming the text, if it is none of these.
[[nodiscard]] device parse_device(std::string_view text);

/// Returns the devices of this machine: `cpu` first, then one entry for each
/// CUDA device that the runtime shows. A build without CUDA shows none.
[[nodiscard]] std::vector<device> devices();

/// Returns normally if `where` is available.
/// @throws error `device_unavailable`, naming the device and how many there
///         are, if it does not exist here or this build has no CUDA kernels.
void require_available(const device& where);

} // namespace syncnorm
