#pragma once

#include "trainer/output/growing_file.hpp"
#include "trainer/output/named_lock.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace syncnorm::train {

/// One row of the metrics: a step, or an epoch after its last step.
struct metrics_row {
  /// Counts from 1.
  std::uint64_t epoch = 0;
  /// Steps done since the beginning of the training.
  std::uint64_t step = 0;
  double learning_rate = 0;
  /// Samples of the step, or of the epoch.
  std::uint64_t samples = 0;
  /// Mean training loss of those samples.
  double loss = 0;
  /// Held-out loss and accuracy: only with an epoch.
  std::optional<double> held_out_loss;
  std::optional<double> held_out_accuracy;
  /// Wall-clock time of the step, or of the epoch's steps, in seconds.
  double seconds = 0;
  /// Share of that time that the replicas, on average, spent waiting for each
  /// other: from 0 to 1.
  double waiting = 0;

  [[nodiscard]] bool is_epoch() const noexcept {
    return held_out_accuracy.has_value();
  }
};

/// The first line of a metrics file.
inline constexpr std::string_view metrics_header =
    "row,epoch,step,lr,samples,loss,held_out_loss,held_out_accuracy,seconds,"
    "waiting";

/// One line, without its end. Numbers have the digits that restore the same
/// bits.
[[nodiscard]] std::string to_csv(const metrics_row& row);

/// Reads what `to_csv` wrote; nothing if it is something else.
[[nodiscard]] std::optional<metrics_row> parse_csv(std::string_view line);

/// The rows of a metrics file.
/// @throws failure that names file and line if it is not one.
[[nodiscard]] std::vector<metrics_row>
read_metrics(const std::filesystem::path& path);

/// A metrics file that grows by one row per step. Only one run at a time has
/// it.
class metrics_file {
public:
  /// Makes `path` anew, with `rows`: those of an interrupted run up to where
  /// this one continues. A file to be replaced is locked by `path.lock` beside
  /// it.
  /// @throws failure if it cannot be written, or another run writes to it.
  metrics_file(const std::filesystem::path& path,
               const std::vector<metrics_row>& rows);

  /// @throws failure, for example if the disk is full.
  void add(const metrics_row& row);

private:
  std::optional<named_lock> lock_;
  growing_file file_;
};

} // namespace syncnorm::train
