#pragma once

#include "syncnorm/detail/caf_compat.hpp"

namespace syncnorm::detail {

/// While it lives, it stands in the place of the thread `by` that brings an
/// actor a message, if that is `network`'s: the actor, if it was idle, runs at
/// its end, before that thread brings the next message. So no worker has to
/// wake up, which takes longer than a round of small messages.
class run_brought_here {
public:
  /// @param network  null: nothing is changed.
  run_brought_here(caf::actor_system& system, worker_type* by,
                   const worker_type* network)
      : by_{by},
        here_{system, by},
        brought_{by != nullptr && by == network} {}

  run_brought_here(const run_brought_here&) = delete;
  run_brought_here& operator=(const run_brought_here&) = delete;

  ~run_brought_here() {
    here_.run();
  }

  [[nodiscard]] worker_type* worker() {
    return brought_ ? &here_ : by_;
  }

private:
  worker_type* by_;
  lent_thread here_;
  bool brought_;
};

} // namespace syncnorm::detail
