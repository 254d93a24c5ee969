#pragma once

#include "trainer/input/dataset.hpp"
#include "trainer/output/progress.hpp"
#include "trainer/output/report.hpp"
#include "trainer/plan/epoch_plan.hpp"
#include "trainer/plan/run_state.hpp"
#include "trainer/plan/settings.hpp"
#include "trainer/run/replica_group.hpp"

#include <functional>
#include <optional>
#include <string>

namespace syncnorm::train {

/// The state from which a run goes on, if `options` say so.
/// @throws failure if there is no checkpoint, if it is damaged or of another
///         run; or, without `--resume`, if there is one that would be lost.
[[nodiscard]] std::optional<run_state> find_state(const settings& options,
                                                  const dataset& data);

/// The file of the checkpoint of `options`.
[[nodiscard]] std::string checkpoint_file(const settings& options);

/// Coordinates the replicas of one run: steps, epochs, checkpoints. It speaks
/// to them by messages only.
class trainer {
public:
  /// @param stop is asked after each step whether to end the run there.
  trainer(const settings& options, const dataset& data, replica_group& replicas,
          progress_display& display, std::function<bool()> stop);

  /// Trains until the last epoch or until it is stopped.
  /// @throws failure with one line that names what went wrong. The last
  ///         checkpoint is as it was.
  void run();

private:
  void step();
  void finish_epoch();
  void save();
  void check_finite(const std::vector<step_report>& reports) const;
  [[nodiscard]] evaluation evaluate();
  [[nodiscard]] bool is_checkpoint_due(bool epoch_ended) const;
  [[nodiscard]] progress_state progress() const;
  [[nodiscard]] double rate() const;
  void conclude();

  const settings& options_;
  const dataset& data_;
  replica_group& replicas_;
  progress_display& display_;
  std::function<bool()> stop_;
  epoch_plan plan_;
  run_state state_;
  std::optional<report> report_;
};

} // namespace syncnorm::train
