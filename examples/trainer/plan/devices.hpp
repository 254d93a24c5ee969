#pragma once

#include "syncnorm/device.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace syncnorm::train {

/// More replicas than this in one process are a typing error.
inline constexpr std::size_t max_replicas = 1024;

/// Reads a list of devices, one for each replica: `cuda:0,cuda:1`, `cpu,cuda`,
/// and `cpu*4` for four times the same. CPU devices are numbered as they come:
/// `cpu:0`, `cpu:1`, …
/// @throws failure that names the wrong item.
[[nodiscard]] std::vector<device> parse_devices(std::string_view text);

/// The devices of a run that names none: every one of `gpus` GPUs, else one
/// replica for each of `cores` cores, up to four.
[[nodiscard]] std::vector<device> default_devices(std::size_t gpus,
                                                  std::size_t cores);

/// The device of a process that a launcher has started with that number on its
/// machine: the GPU of that number or, if the process sees only one, that GPU,
/// as when the launcher shows each process its own; else one core. The other
/// devices are for the processes beside it.
[[nodiscard]] device launched_device(std::size_t gpus, std::int64_t local_rank);

/// Returns `"cpu:0, cpu:1, cuda:0"`.
[[nodiscard]] std::string list_devices(const std::vector<device>& devices);

} // namespace syncnorm::train
