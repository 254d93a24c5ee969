#pragma once

#include "messages.hpp"

namespace pipeline {

/// The stage behind: gives each record a score, the root mean square of its
/// standardized features. It is about 1 for an ordinary record, and more for
/// one that lies apart.
class score : public stage_actor::base {
public:
  score(caf::actor_config& config, sink_actor next);

  void on_exit() override;
  behavior_type make_behavior() override;

private:
  sink_actor next_;
};

} // namespace pipeline
