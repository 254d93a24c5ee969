#pragma once

#include "stream_waiter.hpp"
#include "syncnorm/actors.hpp"

#include <cstdint>
#include <functional>
#include <map>

namespace syncnorm::detail {

/// What a slave actor does when the work that it has given to its stream ends;
/// an actor with a thread of its own waits for the end.
class stream_ends {
public:
  /// Called with no error, or why the work is not done.
  using on_end = std::function<void(const caf::error&)>;
  /// Called with the id of work that has failed, instead of the callback that
  /// waits for its end: `end_from` calls that one.
  using on_failure = std::function<void(std::uint64_t, const caf::error&)>;

  /// @param deadline how long to wait for the device.
  stream_ends(batch_norm_slave_actor::base* self, caf::timespan deadline,
              on_failure failed);

  /// Calls `then` when `work` is done, but not before this has returned.
  void when_done(stream_work work, on_end then);

  /// Keeps what `work` needs until it is done.
  void keep(stream_work work);

  /// Calls the callbacks that wait for work from `id` on, the last first.
  void end_from(std::uint64_t id, const caf::error& reason);

  /// Ends the waiter when it has done what it was given.
  void close();

private:
  void ended(std::uint64_t id, const caf::error& reason);

  batch_norm_slave_actor::base* self_;
  caf::timespan deadline_;
  on_failure failed_;
  stream_waiter_actor waiter_;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, on_end> outstanding_;
};

} // namespace syncnorm::detail
