#pragma once

#include "syncnorm/future_result.hpp"
#include "syncnorm/message_types.hpp"
#include "syncnorm/sync_options.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

namespace syncnorm::detail {

/// What a waiting thread and its agent share: the pipe for the result, and
/// until when the thread is ready to wait. One timer serves many rounds: it is
/// armed when the thread begins to wait and none runs, and re-armed when it
/// rings too early.
template <class Out>
class thread_link {
public:
  using clock = std::chrono::steady_clock;

  std::shared_ptr<future_result<Out>> result =
      std::make_shared<future_result<Out>>();

  /// Waits for the result, for `timeout` at most.
  /// @param agent the actor that calls `remaining` on `check_deadline_atom`.
  caf::expected<Out> wait(const caf::actor& agent, caf::timespan timeout) {
    auto expires = clock::now() + std::min(timeout, max_deadline);
    expires_.store(expires.time_since_epoch().count());
    if (!armed_.exchange(true))
      detail::anon_send(agent, check_deadline_atom_v);
    auto x = result->get();
    expires_.store(0);
    return x;
  }

  /// Called by the agent when its timer rings: how long the thread is still
  /// ready to wait, zero if no longer, nothing if it does not wait. Unless it
  /// returns a positive time, the timer is disarmed.
  std::optional<caf::timespan> remaining() {
    armed_.store(false);
    auto expires = expires_.load();
    if (expires == 0)
      return std::nullopt;
    auto left = clock::duration{expires} - clock::now().time_since_epoch();
    if (left.count() <= 0)
      return caf::timespan{0};
    // Somebody else may have armed it meanwhile; then that one rings.
    if (armed_.exchange(true))
      return std::nullopt;
    return std::chrono::duration_cast<caf::timespan>(left);
  }

  /// Gives the thread `reason` in place of the result, unless that is there.
  /// Returns whether it was not.
  bool leave(const caf::error& reason) {
    left_.store(true);
    if (result->put(reason) == caf::none)
      return true;
    left_.store(false);
    return false;
  }

  /// Whether `x`, which `wait` has returned, is the reason given to `leave`.
  [[nodiscard]] bool has_left(const caf::expected<Out>& x) const {
    return left_.load() && !x && x.error() == errc::deadline_exceeded;
  }

private:
  std::atomic<clock::rep> expires_ = 0;
  std::atomic<bool> left_ = false;
  std::atomic<bool> armed_ = false;
};

} // namespace syncnorm::detail
