#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace syncnorm::detail {

/// How many cores this process may use: those of the machine, or fewer by
/// `taskset` or a container's set of cores.
[[nodiscard]] int usable_cores() noexcept;

/// Permission to spin for a short while. It is given only while this process
/// has fewer spinning threads than spare cores: one of those that it may use is
/// left to whoever the others wait for, so on one core nobody spins. Where each
/// replica has a core, a waiting one keeps nobody from his.
class spin_permit {
public:
  spin_permit() noexcept;
  ~spin_permit();
  spin_permit(const spin_permit&) = delete;
  spin_permit& operator=(const spin_permit&) = delete;

  explicit operator bool() const noexcept {
    return granted_;
  }

private:
  bool granted_;
};

/// How long `spin_until` looks before it gives up. Copies that share a machine
/// reach a round some 100 microseconds apart, processes some more, and a core
/// that has gone to sleep takes as long to wake up.
inline constexpr std::chrono::microseconds spin_time{500};
/// How often it looks, some microseconds, before it lets others run.
inline constexpr int spin_attempts = 50;

/// Tells the processor that this thread is waiting on a cache line.
void relax() noexcept;

/// Returns whether `x` came to hold `wanted` within a short spin. Returns at
/// once what it finds if there is no spare core to spin on.
bool spin_until(const std::atomic<std::uint32_t>& x,
                std::uint32_t wanted) noexcept;

} // namespace syncnorm::detail
