#pragma once

#include <caf/all.hpp>

namespace syncnorm::detail {

/// Whether the actor is on another node, which may be lost and then cannot
/// answer.
template <class Handle>
[[nodiscard]] bool is_distant(const Handle& actor) {
  // A handle's `node` returns a copy, whose count all workers would share.
  auto* block = caf::actor_cast<caf::actor_control_block*>(actor);
  return block && block->node() != block->home_system->node();
}

/// Whether the actor has exited; of one on another node, as far as this node
/// knows.
template <class Handle>
[[nodiscard]] bool has_exited(const Handle& actor) {
  using caf::abstract_actor;
  return actor
         && caf::actor_cast<abstract_actor*>(actor)->getf(
             abstract_actor::is_terminated_flag);
}

} // namespace syncnorm::detail
