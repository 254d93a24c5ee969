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

} // namespace syncnorm::detail
