#pragma once

#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/message_types.hpp"

#include <cstdint>

namespace syncnorm::detail {

/// Turns the end of a stream's work into a message. It has a thread of its own,
/// which waits for one event after the other.
using stream_waiter_actor = typed_actor<
    /// From the actor that has enqueued the work, with an id of its own choice.
    /// Answered with the id when the work is done.
    /// Errors: device_failure.
    caf::result<std::uint64_t>(await_stream_atom, std::uint64_t, stream_work)>;

/// Spawns a waiter for one stream. Its owner, when it ends, ends the waiter.
[[nodiscard]] stream_waiter_actor
spawn_stream_waiter(caf::actor_system& system);

/// Ends a waiter when it has done what it was given before.
void end_stream_waiter(const stream_waiter_actor& waiter);

/// A waiter for a thread, which waits for it.
class stream_watch {
public:
  explicit stream_watch(caf::actor_system& system);

  stream_watch(const stream_watch&) = delete;
  stream_watch& operator=(const stream_watch&) = delete;

  /// Ends the waiter.
  ~stream_watch();

  /// Returns when the work is done.
  /// @throws error `device_failure`, or `deadline_exceeded` after `timeout`.
  void wait(stream_work work, caf::timespan timeout);

private:
  caf::actor_system* system_;
  stream_waiter_actor waiter_;
};

/// The error of a request to a waiter, as a participant reports it.
[[nodiscard]] caf::error explain_stream_error(const caf::error& reason,
                                              caf::timespan timeout);

} // namespace syncnorm::detail
