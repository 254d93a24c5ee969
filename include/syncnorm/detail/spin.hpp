#pragma once

#include <atomic>
#include <cstdint>

namespace syncnorm::detail {

/// How many cores this process may use: those of the machine, or fewer by
/// `taskset` or a container's set of cores.
[[nodiscard]] int usable_cores() noexcept;

/// Tells the processor that this thread is waiting on a cache line.
void relax() noexcept;

/// Returns whether `x` came to hold `wanted` within a short spin. Returns at
/// once what it finds if there is no spare core to spin on.
bool spin_until(const std::atomic<std::uint32_t>& x,
                std::uint32_t wanted) noexcept;

} // namespace syncnorm::detail
