#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace syncnorm::detail {

#if SYNCNORM_CAF_LEGACY

/// What `demonitor` takes.
using monitored = caf::actor_addr;

#else

/// Attached to a monitored actor. What CAF 1.x itself attaches stays until that
/// actor ends, and keeps the observer's memory.
class down_watch final : public caf::attachable {
public:
  using handler =
      std::function<void(const caf::actor_addr&, const caf::error&)>;

  /// Selects the watch of that observer.
  struct of_observer {
    static constexpr std::size_t token_type = 0x73796e65;
    const caf::actor_control_block* observer;
  };

  down_watch(caf::actor_addr who, caf::weak_actor_ptr observer, handler on_down)
      : who_{std::move(who)},
        observer_{std::move(observer)},
        on_down_{std::move(on_down)} {}

  void actor_exited(const caf::error& reason, caf::scheduler* by) override {
    if (auto observer = observer_.lock())
      observer->enqueue(
          caf::make_mailbox_element(
              nullptr, caf::make_message_id(),
              caf::make_single_shot_action([on_down = on_down_, who = who_,
                                            reason] { on_down(who, reason); })),
          by);
  }

  bool matches(const token& what) override {
    return what.subtype == of_observer::token_type
           && static_cast<const of_observer*>(what.ptr)->observer
                  == observer_.get();
  }

private:
  caf::actor_addr who_;
  caf::weak_actor_ptr observer_;
  handler on_down_;
};

/// What `demonitor` takes.
using monitored = caf::weak_actor_ptr;

#endif

/// Calls `on_down(caf::actor_addr, caf::error)` when `participant` has
/// terminated. CAF 0.17 keeps one handler per actor: pass the same callable.
template <class Self, class OnDown>
monitored monitor(Self* self, const caf::actor& participant, OnDown on_down) {
#if SYNCNORM_CAF_LEGACY
  self->set_down_handler(
      [on_down](const caf::down_msg& msg) { on_down(msg.source, msg.reason); });
  self->monitor(participant);
  return participant.address();
#else
  caf::actor_cast<caf::abstract_actor*>(participant)
      ->attach(std::make_unique<down_watch>(participant.address(),
                                            caf::weak_actor_ptr{self->ctrl()},
                                            std::move(on_down)));
  return caf::actor_cast<caf::weak_actor_ptr>(participant);
#endif
}

/// Ends what `monitor` began: `self`, which may have ended, is told no more,
/// and an actor that lives on keeps none of `self`'s memory.
template <class Self>
void demonitor(Self* self, const monitored& x) {
#if SYNCNORM_CAF_LEGACY
  self->demonitor(x);
#else
  if (auto participant = x.lock())
    participant->get()->detach(down_watch::of_observer{self->ctrl()});
#endif
}

} // namespace syncnorm::detail
