#pragma once

#include "syncnorm/future_result.hpp"
#include "syncnorm/message_types.hpp"
#include "syncnorm/sync_options.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace syncnorm::detail {

/// What a waiting thread and its agent share: the pipe for the result, and
/// until when the thread is willing to wait. A timer serves many rounds: the
/// thread asks the agent for one when it begins to wait and none rings in time;
/// the agent sets it again when it rings too early.
template <class Out>
class thread_link {
public:
  using clock = std::chrono::steady_clock;

  std::shared_ptr<future_result<Out>> result =
      std::make_shared<future_result<Out>>();

  /// Call before sending a message that a result will answer.
  void expect() noexcept {
    due_ = result->fetched() + 1;
  }

  /// Whether the result of the last message has not been fetched.
  [[nodiscard]] bool is_outstanding() const noexcept {
    return result->fetched() < due_;
  }

  /// Why the thread has left, once `wait` has returned it.
  [[nodiscard]] const caf::error& why_left() const noexcept {
    return why_left_;
  }

  /// The future of the reply to a message that is not sent.
  future_result<Out>& refuse(caf::error reason) {
    if (refused_.is_ready())
      std::ignore = refused_.get();
    std::ignore = refused_.put(std::move(reason));
    return refused_;
  }

  /// Waits for the result, for `timeout` at most; not at all if that is
  /// negative. Once the thread has left, nobody would end its wait.
  /// @param agent the actor that calls `remaining` on `check_deadline_atom`.
  /// @param who   `who()` begins the error text of a thread that has left.
  template <class Who>
  caf::expected<Out> wait(const caf::actor& agent, caf::timespan timeout,
                          Who who) {
    timeout = std::clamp(timeout, caf::timespan{0}, max_deadline);
    auto expires = ticks(clock::now() + timeout);
    expires_.store(expires);
    // This thread stores `expires_`, then loads `rings_`; the agent stores
    // `rings_`, then loads `expires_`: one of them sees what the other has
    // stored.
    if (expires < rings_.load()) {
      rings_.store(expires);
      detail::anon_send(agent, check_deadline_atom_v);
    }
    auto x = result->get();
    if (!has_left())
      return x;
    why_left_ =
        make_error(errc::deadline_exceeded, std::string{who()} + departure);
    return why_left_;
  }

  /// Called by the agent on `check_deadline_atom`. Returns zero if the thread
  /// is no longer willing to wait, else how long until the next ring; nothing
  /// if it does not wait or a timer rings before.
  std::optional<caf::timespan> remaining() {
    auto now = ticks(clock::now());
    while (!timers_.empty() && timers_.back() <= now)
      timers_.pop_back();
    auto next = timers_.empty() ? never : timers_.back();
    rings_.store(next);
    auto expires = expires_.load();
    if (expires <= 0)
      return std::nullopt;
    overdue_ = expires;
    if (expires <= now)
      return caf::timespan{0};
    if (expires >= next)
      return std::nullopt;
    timers_.push_back(expires);
    rings_.store(expires);
    return std::chrono::duration_cast<caf::timespan>(
        clock::duration{expires - now});
  }

  /// Called by the agent when `remaining` was zero: ends the wait that
  /// `remaining` saw, and no other, unless its result is there. Returns whether
  /// the thread has left.
  bool leave() {
    auto overdue = overdue_;
    if (!expires_.compare_exchange_strong(overdue, leaving))
      return false;
    auto reason = make_error(errc::deadline_exceeded, departure);
    auto left = result->put(std::move(reason)) == caf::none;
    expires_.store(left ? gone : 0);
    expires_.notify_one();
    return left;
  }

  /// What a thread that has left is told.
  static constexpr auto departure =
      "its thread waited past its own deadline for the master's answer";

private:
  /// The agent ends the thread's wait.
  static constexpr clock::rep leaving = -1;
  /// The agent has ended it.
  static constexpr clock::rep gone = -2;

  /// Ends the wait of the thread, which has a result. Returns whether the agent
  /// has ended it before; if the agent is about to, only the agent knows.
  bool has_left() {
    for (auto state = expires_.load();;)
      if (state == leaving) {
        expires_.wait(state);
        state = expires_.load();
      } else if (expires_.compare_exchange_weak(state, 0)) {
        return state == gone;
      }
  }
  static constexpr auto never = std::numeric_limits<clock::rep>::max();

  static clock::rep ticks(clock::time_point x) {
    return x.time_since_epoch().count();
  }

  /// Until when the thread is willing to wait; 0: it does not wait.
  std::atomic<clock::rep> expires_ = 0;
  /// When a timer rings, or will ring once the agent has read the message to
  /// it.
  std::atomic<clock::rep> rings_ = never;
  /// The thread's: how many results it will have fetched with the awaited one.
  std::uint64_t due_ = 0;
  caf::error why_left_;
  future_result<Out> refused_;
  /// The agent's: the value of `expires_` that `remaining` saw.
  clock::rep overdue_ = 0;
  /// The agent's: when its timers ring, the next one last. A new one rings
  /// before all others.
  std::vector<clock::rep> timers_;
};

} // namespace syncnorm::detail
