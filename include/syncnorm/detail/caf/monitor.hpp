#pragma once

#include "syncnorm/detail/caf/line.hpp"

namespace syncnorm::detail {

/// What `demonitor` takes.
#if SYNCNORM_CAF_LEGACY
using monitored = caf::actor_addr;
#else
using monitored = caf::disposable;
#endif

/// Calls `on_down(caf::actor_addr, caf::error)` when `participant` has
/// terminated. CAF 0.17 keeps one handler an actor: pass the same callable.
template <class Self, class OnDown>
monitored monitor(Self* self, const caf::actor& participant, OnDown on_down) {
#if SYNCNORM_CAF_LEGACY
  self->set_down_handler(
      [on_down](const caf::down_msg& msg) { on_down(msg.source, msg.reason); });
  self->monitor(participant);
  return participant.address();
#else
  auto addr = participant.address();
  return self->monitor(participant, [on_down, addr](const caf::error& reason) {
    on_down(addr, reason);
  });
#endif
}

/// Ends what `monitor` began: `self`, which may have ended, is told no more,
/// and an actor that lives on keeps none of its memory. CAF 1.x keeps that of
/// an actor's address.
template <class Self>
void demonitor([[maybe_unused]] Self* self, monitored x) {
#if SYNCNORM_CAF_LEGACY
  self->demonitor(x);
#else
  x.dispose();
#endif
}

} // namespace syncnorm::detail
