#pragma once

#include "syncnorm/detail/caf_compat.hpp"

namespace syncnorm::detail {

/// While it lives, it stands in the place of the `network`'s thread, which
/// brings an actor a message: the actor, if it was idle, runs at its end,
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

} // namespace syncnorm::detail
