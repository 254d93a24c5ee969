#pragma once

#include "trainer/input/dataset.hpp"
#include "trainer/output/progress.hpp"
#include "trainer/output/report.hpp"
#include "trainer/plan/epoch_plan.hpp"
#include "trainer/plan/run_state.hpp"
#include "trainer/plan/settings.hpp"
#include "trainer/run/fleet.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace syncnorm::train {

/// The state from which a run continues, if `options` say so.
/// @throws failure if there is no checkpoint, if it is damaged or of another
///         run; or, without `--resume`, if there is one that would be lost.
[[nodiscard]] std::optional<run_state> find_state(const settings& options,
                                                  const dataset& data);

/// The checkpoint file of `options`.
[[nodiscard]] std::string checkpoint_file(const settings& options);

/// Coordinates the replicas of one run: steps, epochs, checkpoints. It speaks
/// to them by messages only.
class trainer {
public:
  /// Gives the replicas the state to begin with.
  /// @param stop is asked after each step whether to end the run there.
  trainer(const settings& options, const dataset& data, fleet& processes,
          progress_display& display, std::function<bool()> stop);

  /// Trains until the last epoch or until it is stopped.
  /// @returns the last line for the user.
  /// @throws failure with one line that names what went wrong. The last
  ///         checkpoint is as it was; if a process was lost, a replica failed
  ///         or the report cannot be written, there is a checkpoint of the last
  ///         complete step, or the line says why not.
  std::string run();

private:
  [[nodiscard]] step_plan plan_of(std::size_t step, std::size_t begin) const;
  [[nodiscard]] step_plan next_step() const;
  [[nodiscard]] bool must_pause_after(const step_plan& plan) const;
  void step();
  void end_step();
  void account(const step_plan& plan, const std::vector<step_report>& reports);
  void advance();
  void admit();
  void assemble();
  void recover(const replica_failure& problem);
  void lose(const std::vector<std::string>& news, const std::string& why);
  [[noreturn]] void give_up(const std::string& why);
  void finish_epoch();
  /// Adds to the report, as long as it can be written.
  void record(const metrics_row& row);
  void save();
  void write_checkpoint();
  /// "; the checkpoint before it is FILE, of step 7"; empty without one.
  [[nodiscard]] std::string checkpoint_before() const;
  void check_finite(const std::vector<step_report>& reports) const;
  [[nodiscard]] evaluation evaluate();
  [[nodiscard]] bool is_checkpoint_due(std::size_t step,
                                       bool epoch_ended) const;
  [[nodiscard]] progress_state progress() const;
  [[nodiscard]] double rate_after(std::size_t steps) const;
  [[nodiscard]] bool is_epoch_done() const;
  std::string stop_here();
  std::string conclude();
  void finish_report();

  const settings& options_;
  const dataset& data_;
  fleet& processes_;
  replica_group& replicas_;
  progress_display& display_;
  std::function<bool()> stop_;
  epoch_plan plan_;
  run_state state_;
  std::optional<report> report_;
  /// Why the report cannot be written; empty if it can.
  std::string report_failure_;
  /// The step of the existing checkpoint.
  std::optional<std::uint64_t> saved_step_;
  /// Whether the replicas take part in the same rounds.
  bool assembled_ = false;
  /// Whether `stop` has asked to end the run.
  bool stopping_ = false;
  /// When the step before ended, or this one began.
  std::chrono::steady_clock::time_point since_;
  /// The evaluation of the epoch that ended last.
  std::optional<evaluation> evaluated_;
  /// How long the last evaluation took.
  std::chrono::duration<double> evaluation_time_{};
};

} // namespace syncnorm::train
