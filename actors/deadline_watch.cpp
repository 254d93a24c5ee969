#include "syncnorm/detail/deadline_watch.hpp"

#include "syncnorm/message_types.hpp"

namespace syncnorm::detail {

namespace {

caf::behavior watch(caf::event_based_actor* self, const caf::actor_addr& target,
                    caf::timespan delay) {
  detail::delayed_send(self, caf::actor{self}, delay, check_deadline_atom_v);
  return {
      [self, target](check_deadline_atom) {
        if (auto strong = caf::actor_cast<caf::strong_actor_ptr>(target))
          detail::anon_send(caf::actor_cast<caf::actor>(strong),
                            check_deadline_atom_v);
        self->quit();
      },
  };
}

} // namespace

caf::actor spawn_deadline_watch(caf::actor_system& system,
                                caf::actor_addr target, caf::timespan delay) {
  return system.spawn<caf::hidden>(watch, std::move(target), delay);
}

void end_deadline_watch(const caf::actor& watch) {
  if (watch)
    caf::anon_send_exit(watch, caf::exit_reason::user_shutdown);
}

} // namespace syncnorm::detail
