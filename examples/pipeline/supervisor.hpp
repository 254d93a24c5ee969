#pragma once

#include "messages.hpp"

#include <syncnorm/batch_norm_stage.hpp>

#include <memory>
#include <string>
#include <vector>

namespace pipeline {

using stages = std::vector<std::unique_ptr<syncnorm::batch_norm_stage>>;

/// Makes one stage per slave, one on each device in order, with the state in
/// `state_file` if that is not empty and exists.
/// @param training learn from the batches; otherwise normalize with what is
///                 known.
/// @throws std::runtime_error for a saved state that does not fit.
stages make_stages(caf::actor_system& system,
                   syncnorm::batch_norm_options options,
                   const std::vector<syncnorm::device>& devices, bool training,
                   const std::string& state_file);

/// Owns the stages: starts their slave actors, and starts all of them anew when
/// one has died. The statistics outlive the actors: a slave gives its state
/// back when it ends, however it ends. Spawn the supervisor detached: it waits
/// for these states.
class supervisor : public supervisor_actor::base {
public:
  /// @param state_file where the state is saved at the end; empty: nowhere.
  supervisor(caf::actor_config& config, stages owned, std::string state_file);

  void on_exit() override;
  behavior_type make_behavior() override;

private:
  [[nodiscard]] crew current() const;
  crew recover();
  std::string dismiss();

  stages stages_;
  std::string state_file_;
};

} // namespace pipeline
