#pragma once

#include "syncnorm/detail/caf_compat.hpp"

namespace syncnorm::detail {

/// Whether the actor has exited; for one on another node, as far as this node
/// knows.
template <class Handle>
[[nodiscard]] bool has_exited(const Handle& actor) {
  using caf::abstract_actor;
  return actor
         && caf::actor_cast<abstract_actor*>(actor)->getf(
             abstract_actor::is_terminated_flag);
}

/// Why an actor has exited; for one on another node, as far as this node knows.
[[nodiscard]] caf::error reason_of_exit(caf::abstract_actor& gone);

/// Returns an actor that answers the one request that it gets with `reason`,
/// and ends. CAF, too, answers in place of an actor that has exited, but with
/// an error of its own, which cannot say whose master that was.
[[nodiscard]] caf::actor spawn_stand_in(caf::actor_system& system,
                                        caf::error reason);

} // namespace syncnorm::detail
