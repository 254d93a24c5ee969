#include "trainer/output/report.hpp"

#include "trainer/failure.hpp"
#include "trainer/output/atomic_file.hpp"
#include "trainer/output/chart.hpp"
#include "trainer/output/output_file.hpp"

#include <fmt/format.h>

namespace syncnorm::train {

namespace {

/// Empty without `--metrics`.
std::filesystem::path metrics_path(const settings& options) {
  auto path = output_file("--metrics", options.metrics);
  if (path.extension() == ".svg")
    throw failure{fmt::format("--metrics: expected another name than that of "
                              "the chart beside it, found {}",
                              path.string())};
  return path;
}

bool has_rows(const settings& options) {
  return options.resume && std::filesystem::is_regular_file(options.metrics);
}

std::vector<metrics_row> rows_to_keep(const settings& options,
                                      std::uint64_t step) {
  std::vector<metrics_row> rows;
  if (has_rows(options))
    rows = read_metrics(options.metrics);
  std::erase_if(rows, [step](const auto& row) { return row.step > step; });
  return rows;
}

std::string range_text(const char* what, std::uint64_t first,
                       std::uint64_t last) {
  return first == last ? fmt::format("the row of {} {} is missing", what, first)
                       : fmt::format("the rows of {}s {} to {} are missing",
                                     what, first, last);
}

/// What a run that could not write its metrics has left out at their end.
std::string gap_after(const std::vector<metrics_row>& rows, std::uint64_t steps,
                      std::uint64_t epochs) {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  for (const auto& row : rows) {
    auto& last = row.is_epoch() ? epoch : step;
    last = row.is_epoch() ? row.epoch : row.step;
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

} // namespace

report::report(const settings& options, std::uint64_t step,
               std::uint64_t epochs)
    : metrics_path_{metrics_path(options)},
      log_folder_{options.logdir},
      rows_{rows_to_keep(options, step)} {
  if (has_rows(options))
    if (auto gap = gap_after(rows_, step, epochs); !gap.empty())
      gap_ = fmt::format("{}: {}", options.metrics, gap);
  if (!metrics_path_.empty())
    metrics_.emplace(metrics_path_, rows_);
  if (!log_folder_.empty()) {
    require_writable_folder(log_folder_);
    std::optional<std::int64_t> resumed;
    if (options.resume)
      resumed = static_cast<std::int64_t>(step + 1);
    events_.emplace(log_folder_, resumed);
  }
}

void report::add(const metrics_row& row) {
  rows_.push_back(row);
  if (metrics_)
    metrics_->add(row);
  if (!events_)
    return;
  auto step = static_cast<std::int64_t>(row.step);
  if (row.is_epoch()) {
    events_->add(step, "loss/held_out", row.held_out_loss.value_or(0));
    events_->add(step, "accuracy/held_out", row.held_out_accuracy.value_or(0));
    events_->add(step, "time/waiting_share", row.waiting);
    if (row.seconds > 0)
      events_->add(step, "time/samples_per_second",
                   static_cast<double>(row.samples) / row.seconds);
    events_->flush();
  } else {
    events_->add(step, "loss/training", row.loss);
    events_->add(step, "learning_rate", row.learning_rate);
  }
}

std::optional<std::filesystem::path> report::chart_path() const {
  if (!log_folder_.empty() && metrics_path_.empty())
    return std::filesystem::path{log_folder_} / "chart.svg";
  // A device or a pipe has no folder for charts.
  if (std::filesystem::is_regular_file(metrics_path_))
    return std::filesystem::path{metrics_path_}.replace_extension(".svg");
  return std::nullopt;
}

std::optional<std::filesystem::path> report::finish() {
  if (events_)
    events_->flush();
  auto path = chart_path();
  if (path)
    write_atomically(*path,
                     render_svg({loss_panel(rows_), accuracy_panel(rows_)}));
  return path;
}

} // namespace syncnorm::train
