#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

// When a round of that deadline is over for a master, and for a relay.

namespace syncnorm::detail {

/// How long a relay that is late may take to say whom it waits for.
[[nodiscard]] inline caf::timespan grace_of(caf::timespan deadline) {
  return std::min<caf::timespan>(deadline / 4, std::chrono::milliseconds{500});
}

/// By how much a timer may ring too late: a master and its relays that are late
/// must have ended the round before its other relays are out of patience.
[[nodiscard]] inline caf::timespan slack_of(caf::timespan deadline) {
  return grace_of(deadline) / 4;
}

/// Whether a timer must be set for a round of that deadline that is over at
/// `due`, where one `rings` already, if so. One that rings too early is set
/// again then: so one timer serves many rounds.
[[nodiscard]] inline bool
needs_timer(const std::optional<caf::actor_clock::time_point>& rings,
            caf::actor_clock::time_point due, caf::timespan deadline) {
  return !rings || *rings - due > slack_of(deadline);
}

/// How long a relay waits for the answer of its parent, from its round's first
/// message on. Threads and distant actors wait a second longer than the
/// deadline: a little less, so that those behind the relay hear of it who was
/// silent.
[[nodiscard]] inline caf::timespan relay_patience(caf::timespan deadline) {
  return deadline + std::chrono::milliseconds{900};
}

} // namespace syncnorm::detail
