#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

// When a round with a given deadline is over, for a master and for a relay.

namespace syncnorm::detail {

/// How long a late relay may take to report whom it waits for.
[[nodiscard]] inline caf::timespan grace_of(caf::timespan deadline) {
  return std::min<caf::timespan>(deadline / 4, std::chrono::milliseconds{500});
}

/// By how much a timer may ring too late: a master and its late relays must
/// have ended the round before its other relays run out of patience.
[[nodiscard]] inline caf::timespan slack_of(caf::timespan deadline) {
  return grace_of(deadline) / 4;
}

/// Whether a timer must be set for a round with that deadline that is over at
/// `due`; `rings` is when a timer already set rings, if any. A timer that rings
/// too early is set again then: so one serves many rounds.
[[nodiscard]] inline bool
needs_timer(const std::optional<caf::actor_clock::time_point>& rings,
            caf::actor_clock::time_point due, caf::timespan deadline) {
  return !rings || *rings - due > slack_of(deadline);
}

/// How long a relay waits for its parent's answer, from its round's first
/// message on. Threads and distant actors wait a second longer than the
/// deadline; this is a little less, so that those behind the relay hear from it
/// who was silent.
[[nodiscard]] inline caf::timespan relay_patience(caf::timespan deadline) {
  return deadline + std::chrono::milliseconds{900};
}

} // namespace syncnorm::detail
