#pragma once

#include "messages.hpp"

namespace pipeline {

/// The stage after the normalizer: gives each record a score, the root mean
/// square of its standardized features. The score is about 1 for an ordinary
/// record, and larger for an outlier.
class score : public stage_actor::base {
public:
  score(caf::actor_config& config, sink_actor next);

  void on_exit() override;
  behavior_type make_behavior() override;

private:
  sink_actor next_;
};

} // namespace pipeline
