#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <utility>

namespace syncnorm::detail {

/// While it lives, stands in for the `network`'s thread, which brings an actor
/// a message: when this object is destroyed, the actor, if it was idle, runs
/// before that thread brings the next message. So no worker has to wake up,
/// which takes longer than a round of small messages.
class run_brought_here {
public:
  run_brought_here(caf::actor_system& system, worker_type* network)
      : here_{system, network} {}

  run_brought_here(const run_brought_here&) = delete;
  run_brought_here& operator=(const run_brought_here&) = delete;

  ~run_brought_here() {
    here_.run();
  }

  [[nodiscard]] worker_type* worker() {
    return &here_;
  }

private:
  lent_thread here_;
};

/// An Actor whose messages take microseconds and never wait: it runs on the
/// network's thread where that brings a message.
template <class Actor>
class brought_here : public Actor {
public:
  /// @param brief whether the messages are like that; otherwise this class adds
  ///              nothing.
  template <class... Ts>
  brought_here(caf::actor_config& config, bool brief, Ts&&... xs)
      : Actor{config, std::forward<Ts>(xs)...},
        network_{brief ? network_worker(this->system()) : nullptr} {}

  using Actor::enqueue;

  enqueue_result enqueue(caf::mailbox_element_ptr message,
                         worker_type* by) override {
    if (by == nullptr || by != network_)
      return Actor::enqueue(std::move(message), by);
    run_brought_here here{this->home_system(), by};
    return Actor::enqueue(std::move(message), here.worker());
  }

private:
  worker_type* const network_;
};

} // namespace syncnorm::detail
