#pragma once

#include "syncnorm/detail/caf/line.hpp"

namespace syncnorm::detail {

/// Calls `on_down(caf::actor_addr, caf::error)` when `participant` has
/// terminated. CAF 0.17 keeps one handler an actor: pass the same callable.
template <class Self, class OnDown>
void monitor(Self* self, const caf::actor& participant, OnDown on_down) {
#if SYNCNORM_CAF_LEGACY
  self->set_down_handler(
      [on_down](const caf::down_msg& msg) { on_down(msg.source, msg.reason); });
  self->monitor(participant);
#else
  auto addr = participant.address();
  self->monitor(participant, [on_down, addr](const caf::error& reason) {
    on_down(addr, reason);
  });
#endif
}

} // namespace syncnorm::detail
