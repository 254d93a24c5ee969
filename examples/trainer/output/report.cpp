#include "trainer/output/report.hpp"

#include "trainer/failure.hpp"
#include "trainer/output/atomic_file.hpp"
#include "trainer/output/chart.hpp"
#include "trainer/output/output_file.hpp"

#include <fmt/format.h>

#include <utility>

namespace syncnorm::train {

namespace {

/// Whether that is one of the checkpoint's own files.
bool is_checkpoint(const settings& options, const std::filesystem::path& path) {
  std::error_code ignored;
  return !options.checkpoint.empty()
         && path.filename().string().starts_with("checkpoint.")
         && std::filesystem::equivalent(
             path.has_parent_path() ? path.parent_path() : ".",
             options.checkpoint, ignored);
}

/// Whether both are one file, which need not exist yet.
bool same_place(const std::filesystem::path& a,
                const std::filesystem::path& b) {
  std::error_code ignored;
  return std::filesystem::weakly_canonical(a, ignored)
         == std::filesystem::weakly_canonical(b, ignored);
}

/// The option that says where metrics and chart go, if one does.
const char* option_of(const settings& options) {
  return options.metrics.empty() ? "--logdir" : "--metrics";
}

/// The metrics that the options ask for; with `--logdir` alone, a file in that
/// folder, so that the chart of a continued run has all of it.
std::filesystem::path metrics_path(const settings& options) {
  if (options.metrics.empty() && options.logdir.empty())
    return {};
  std::filesystem::path named{options.metrics};
  if (named.empty())
    named = std::filesystem::path{options.logdir} / "metrics.csv";
  const auto* option = option_of(options);
  auto path = output_file(option, named);
  if (is_checkpoint(options, path))
    throw failure{fmt::format("{}: expected another name than those of the "
                              "checkpoint, found {}",
                              option, path.string())};
  if (!options.metrics.empty() && path.extension() == ".svg")
    throw failure{fmt::format("--metrics: expected another name than that of "
                              "the chart beside it, found {}",
                              path.string())};
  return path;
}

bool has_rows(const settings& options) {
  return options.resume
         && std::filesystem::is_regular_file(metrics_path(options));
}

/// What an earlier run has written.
struct earlier_rows {
  /// The rows that count.
  std::vector<metrics_row> kept;
  /// Whether the run continues from an epoch's last step to its held-out
  /// images, for which there is a row already.
  bool repeats_epoch = false;
};

/// @param epochs how many were done by that step: a checkpoint of an epoch's
///               last step may not count the epoch yet.
earlier_rows rows_until(const settings& options, std::uint64_t step,
                        std::uint64_t epochs) {
  earlier_rows result;
  if (!has_rows(options))
    return result;
  for (const auto& row : read_metrics(metrics_path(options)))
    if (row.step <= step && row.is_epoch() && row.epoch > epochs)
      result.repeats_epoch = true;
    else if (row.step <= step)
      result.kept.push_back(row);
  return result;
}

std::string range_text(const char* what, std::uint64_t first,
                       std::uint64_t last) {
  return first == last ? fmt::format("the row of {} {} is missing", what, first)
                       : fmt::format("the rows of {}s {} to {} are missing",
                                     what, first, last);
}

/// What a run that could not write its metrics has left out: between two rows,
/// or at their end. A file may begin where an earlier run with another file
/// ended.
std::string gap_after(const std::vector<metrics_row>& rows, std::uint64_t steps,
                      std::uint64_t epochs) {
  if (rows.empty())
    return "";
  const auto& first = rows.front();
  auto step = first.step;
  auto epoch = first.epoch - 1;
  for (const auto& row : rows) {
    auto& last = row.is_epoch() ? epoch : step;
    auto next = row.is_epoch() ? row.epoch : row.step;
    if (next > last + 1)
      return range_text(row.is_epoch() ? "epoch" : "step", last + 1, next - 1);
    last = next;
  }
  if (step < steps)
    return range_text("step", step + 1, steps);
  return epoch < epochs ? range_text("epoch", epoch + 1, epochs) : "";
}

chart_panel loss_panel(const std::vector<metrics_row>& rows) {
  chart_series training{"training", {}};
  chart_series held_out{"held-out", {}};
  for (const auto& row : rows) {
    auto step = static_cast<double>(row.step);
    if (row.is_epoch())
      held_out.points.push_back({step, row.held_out_loss.value_or(0)});
    else
      training.points.push_back({step, row.loss});
  }
  return {"Loss", "step", "cross entropy", {training, held_out}};
}

chart_panel accuracy_panel(const std::vector<metrics_row>& rows) {
  chart_series held_out{"held-out", {}};
  for (const auto& row : rows)
    if (row.is_epoch())
      held_out.points.push_back({static_cast<double>(row.epoch),
                                 100 * row.held_out_accuracy.value_or(0)});
  return {"Accuracy", "epoch", "percent", {held_out}};
}

/// Where the chart goes. A device or a pipe has no folder for charts.
std::optional<std::filesystem::path> chart_of(const settings& options) {
  if (options.metrics.empty() && options.logdir.empty())
    return std::nullopt;
  if (options.metrics.empty())
    return std::filesystem::path{options.logdir} / "chart.svg";
  auto metrics = metrics_path(options);
  auto is_file = std::filesystem::is_regular_file(metrics)
                 || !std::filesystem::exists(metrics);
  return is_file ? std::optional{metrics.replace_extension(".svg")}
                 : std::nullopt;
}

/// Whether something other than a chart would be lost.
bool is_foreign(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path))
    return false;
  auto begin = read_beginning(path, 512);
  return !begin.empty() && !is_chart(begin);
}

/// The file that the chart is written to. Throws before anything is computed,
/// if it could not be written then.
std::optional<std::filesystem::path> chart_file(const settings& options) {
  const auto* option = option_of(options);
  auto named = chart_of(options);
  if (!named)
    return std::nullopt;
  auto path = output_file(option, *named);
  if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path))
    throw failure{fmt::format("{}: the chart goes to {}: expected a file or "
                              "none, found something else",
                              option, path.string())};
  if (is_checkpoint(options, path) || same_place(path, metrics_path(options)))
    throw failure{fmt::format("{}: the chart goes to {}: expected another file "
                              "than the metrics and the checkpoint",
                              option, path.string())};
  if (is_foreign(path))
    throw failure{fmt::format("{}: the chart goes to {}: expected a chart of "
                              "an earlier run, or no file, found another file",
                              option, path.string())};
  return path;
}

void require_folder_of_metrics(const settings& options) {
  auto folder = metrics_path(options).parent_path();
  std::error_code ignored;
  if (options.metrics.empty() || folder.empty()
      || std::filesystem::is_directory(folder, ignored))
    return;
  throw failure{fmt::format("--metrics: {}: expected a folder {}, found none",
                            options.metrics, folder.string())};
}

} // namespace

void require_report_files(const settings& options) {
  require_folder_of_metrics(options);
  auto metrics = metrics_path(options);
  // A device or a pipe is written to as it is.
  if (!metrics.empty()
      && (std::filesystem::is_regular_file(metrics)
          || !std::filesystem::exists(metrics)))
    require_replaceable(metrics);
  if (auto chart = chart_file(options))
    require_replaceable(*chart);
}

report::report(const settings& options, std::uint64_t step,
               std::uint64_t epochs)
    : metrics_path_{metrics_path(options)} {
  auto earlier = rows_until(options, step, epochs);
  rows_ = std::move(earlier.kept);
  require_folder_of_metrics(options);
  if (has_rows(options))
    if (auto gap = gap_after(rows_, step, epochs); !gap.empty())
      gap_ = fmt::format("{}: {}", metrics_path_.string(), gap);
  chart_path_ = chart_file(options);
  if (!options.logdir.empty())
    require_writable_folder(options.logdir);
  if (!metrics_path_.empty())
    metrics_.emplace(metrics_path_, rows_);
  if (!options.logdir.empty())
    open_events(options, step, earlier.repeats_epoch);
}

void report::open_events(const settings& options, std::uint64_t step,
                         bool repeats_epoch) {
  std::optional<std::int64_t> resumed;
  if (options.resume)
    resumed = static_cast<std::int64_t>(repeats_epoch ? step : step + 1);
  events_.emplace(options.logdir, resumed);
  // What earlier files say of the epoch is of the same step as what they say of
  // its last step, and does not count without it.
  if (repeats_epoch && !rows_.empty() && rows_.back().step == step)
    add_events(rows_.back());
}

void report::add(const metrics_row& row) {
  if (chart_path_)
    rows_.push_back(row);
  if (metrics_)
    metrics_->add(row);
  if (events_)
    add_events(row);
}

void report::add_events(const metrics_row& row) {
  auto step = static_cast<std::int64_t>(row.step);
  if (row.is_epoch()) {
    events_->add(step, "loss/held_out", row.held_out_loss.value_or(0));
    events_->add(step, "accuracy/held_out", row.held_out_accuracy.value_or(0));
    events_->add(step, "time/waiting_share", row.waiting);
    if (row.seconds > 0)
      events_->add(step, "time/samples_per_second",
                   static_cast<double>(row.samples) / row.seconds);
  } else {
    events_->add(step, "loss/training", row.loss);
    events_->add(step, "learning_rate", row.learning_rate);
  }
  // A checkpoint of this step must not know of more than these files do.
  events_->flush();
}

std::optional<std::filesystem::path> report::finish() {
  if (chart_path_)
    write_atomically(*chart_path_,
                     render_svg({loss_panel(rows_), accuracy_panel(rows_)}));
  return chart_path_;
}

} // namespace syncnorm::train
