#pragma once

#include "syncnorm/detail/caf_compat.hpp"

namespace syncnorm::detail {

/// Sends `check_deadline_atom` to `target` after `delay`, if it still exists
/// then. The timer holds the target weakly: it never keeps a master alive that
/// nobody can reach any more, nor an actor system that wants to shut down.
void spawn_deadline_watch(caf::actor_system& system, caf::actor_addr target,
                          caf::timespan delay);

} // namespace syncnorm::detail
