#pragma once

#include <atomic>
#include <cstdint>

namespace syncnorm::nn::detail {

/// Counts the users of something that any thread may close for good: at once,
/// or else when the last user is done with it. No lock; nobody waits.
class closable {
public:
  /// Begins a use. After `close`, begins none and returns false.
  [[nodiscard]] bool enter() noexcept {
    auto users = state_.load(std::memory_order_relaxed);
    while (users < closed)
      if (state_.compare_exchange_weak(users, users + 1,
                                       std::memory_order_acquire))
        return true;
    return false;
  }

  /// Ends a use. Returns whether the caller is to clear away what was closed.
  [[nodiscard]] bool leave() noexcept {
    return state_.fetch_sub(1, std::memory_order_acq_rel) == closed + 1;
  }

  /// Returns whether the caller is to clear away: nobody uses it, and it was
  /// not closed before.
  [[nodiscard]] bool close() noexcept {
    return state_.fetch_or(closed, std::memory_order_acq_rel) == 0;
  }

private:
  static constexpr std::uint32_t closed = std::uint32_t{1} << 31;

  /// How many use it, and whether it is closed.
  std::atomic<std::uint32_t> state_ = 0;
};

} // namespace syncnorm::nn::detail
