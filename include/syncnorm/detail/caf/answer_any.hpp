#pragma once

#include "syncnorm/detail/caf/line.hpp"

namespace syncnorm::detail {

/// A behavior that answers any message with `reason`, and ends the actor.
inline caf::behavior answer_any(caf::event_based_actor* self,
                                const caf::error& reason) {
#if SYNCNORM_CAF_LEGACY
  self->set_default_handler(caf::scheduled_actor::default_handler{
      [reason](caf::scheduled_actor* me, auto&) {
        me->quit();
        return reason;
      }});
  return {[](const caf::unit_t&) {}};
#else
  return {[self, reason](const caf::message&) {
    self->quit();
    return reason;
  }};
#endif
}

} // namespace syncnorm::detail
