#pragma once

#include "syncnorm/detail/caf_compat.hpp"

namespace syncnorm::detail {

/// Sends `check_deadline_atom` to `target` after `delay`, if it still exists
/// then. The timer holds the target weakly: it never keeps a master alive that
/// nobody can reach any more.
caf::actor spawn_deadline_watch(caf::actor_system& system,
                                caf::actor_addr target, caf::timespan delay);

/// Ends a timer that is no longer needed, if there is one. Otherwise CAF 0.17's
/// clock would have to end it with the actor system, and locks up with more
/// than a few dozen.
void end_deadline_watch(const caf::actor& watch);

} // namespace syncnorm::detail
