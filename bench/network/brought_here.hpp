#pragma once

#include "syncnorm/detail/run_brought_here.hpp"

#include <utility>

namespace syncnorm::bench {

/// Which thread runs an actor that a message from another process wakes.
enum class wakes_up {
  /// A worker of CAF's.
  a_worker,
  /// The one that brings the message, as it runs masters and relays.
  here,
};

/// Adds that choice to an actor's class.
template <class Actor>
class brought_here : public Actor {
public:
  template <class... Ts>
  brought_here(caf::actor_config& config, wakes_up where, Ts&&... xs)
      : Actor{config, std::forward<Ts>(xs)...},
        network_{where == wakes_up::here
                     ? detail::network_worker(this->system())
                     : nullptr} {}

  using Actor::enqueue;

  detail::enqueue_result enqueue(caf::mailbox_element_ptr message,
                                 detail::worker_type* by) override {
    if (by == nullptr || by != network_)
      return Actor::enqueue(std::move(message), by);
    detail::run_brought_here here{this->home_system(), by};
    return Actor::enqueue(std::move(message), here.worker());
  }

private:
  detail::worker_type* const network_;
};

} // namespace syncnorm::bench
