#pragma once

#include "syncnorm/detail/caf_compat.hpp"

namespace syncnorm::detail {

/// Sends `check_deadline_atom` to `target` after `delay`, if it still exists
/// then. The timer holds the target weakly: it never keeps a master alive that
/// nobody can reach any more.
caf::actor spawn_deadline_watch(caf::actor_system& system,
                                caf::actor_addr target, caf::timespan delay);

/// Ends a timer that is not needed any more, if there is one. Left to the end
/// of the actor system, CAF 0.17's clock would have to end it, and locks up
/// over more than a few dozen.
void end_deadline_watch(const caf::actor& watch);

} // namespace syncnorm::detail
