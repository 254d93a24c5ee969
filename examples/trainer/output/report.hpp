#pragma once

#include "trainer/output/event_file.hpp"
#include "trainer/output/metrics_file.hpp"
#include "trainer/plan/settings.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace syncnorm::train {

/// Checks, before anything is computed, whether metrics and chart could be
/// written; writes nothing.
/// @throws failure that names the option, if they would replace a file that the
///         program prints to, a checkpoint, or one that is not a chart; or if
///         the metrics' folder does not exist.
void require_report_files(const settings& options);

/// What a run leaves for later: metrics, event files and a chart, as far as the
/// options ask for them.
class report {
public:
  /// Opens the files.
  /// @param step   the step that the run continues from; rows of an earlier run
  ///               up to there are kept with `--resume`.
  /// @param epochs how many epochs were done by then; rows of later ones are
  ///               not kept.
  /// @throws failure as `require_report_files`; or that names the file, also if
  ///         it does not hold metrics of an earlier run.
  report(const settings& options, std::uint64_t step, std::uint64_t epochs);

  /// Which rows are missing in the metrics of the earlier run, in one line;
  /// empty if none.
  [[nodiscard]] const std::string& gap() const noexcept {
    return gap_;
  }

  /// Adds a step or an epoch.
  /// @throws failure, for example if the disk is full.
  void add(const metrics_row& row);

  /// Draws the chart, loss and accuracy over the steps and epochs, beside the
  /// metrics (the file's name with .svg; beside the file itself if a link leads
  /// to it) or, without `--metrics`, in the log folder (chart.svg).
  /// @returns its path; nothing if there is neither.
  /// @throws failure that names the file.
  std::optional<std::filesystem::path> finish();

private:
  /// @param repeats_epoch whether the earlier run has added the epoch that ends
  ///                      with `step`, and this one adds it again.
  void open_events(const settings& options, std::uint64_t step,
                   bool repeats_epoch);
  void add_events(const metrics_row& row);

  std::filesystem::path metrics_path_;
  std::optional<std::filesystem::path> chart_path_;
  std::vector<metrics_row> rows_;
  std::string gap_;
  std::optional<metrics_file> metrics_;
  std::optional<event_file> events_;
};

} // namespace syncnorm::train
