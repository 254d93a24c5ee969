#pragma once

#include "syncnorm/detail/caf_compat.hpp"

namespace syncnorm::detail {

/// While one of these lives, an actor that `self` wakes up waits; when this
/// object ends, the actor runs on this worker. An actor that has little to do,
/// such as a master, should not wait until another worker has woken up and
/// found it.
class run_woken_here {
public:
  explicit run_woken_here(caf::local_actor* self)
      : self_{self},
        worker_{self->context()},
        here_{self->home_system(), worker_} {
    self->context(&here_);
  }

  run_woken_here(const run_woken_here&) = delete;
  run_woken_here& operator=(const run_woken_here&) = delete;

  ~run_woken_here() {
    self_->context(worker_);
    here_.run();
  }

private:
  caf::local_actor* self_;
  worker_type* worker_;
  lent_thread here_;
};

} // namespace syncnorm::detail
