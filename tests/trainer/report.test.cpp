#include "trainer/output/report.hpp"

#include "trainer/report_files.hpp"
#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace syncnorm::train;

namespace {

/// What a run leaves there that was stopped after an epoch of three steps.
void leave_epoch(const settings& options) {
  report first{options, 0, 0};
  for (std::uint64_t step = 1; step <= 3; ++step)
    first.add(step_row(step));
  first.add(epoch_row(1, 3));
}

} // namespace

TEST_CASE(
    "an epoch that the checkpoint of its last step does not count has one "
    "row of metrics after it was done again") {
  scratch_folder folder;
  settings options;
  options.metrics = folder / "m.csv";
  leave_epoch(options);
  options.resume = true;
  report{options, 3, 0}.add(epoch_row(1, 3));
  auto rows = read_metrics(options.metrics);
  REQUIRE(rows.size() == 4);
  CHECK(rows.back().is_epoch());
  // One that is counted stays.
  report{options, 3, 1}.add(step_row(4));
  CHECK(read_metrics(options.metrics).size() == 5);
}

TEST_CASE("the events of such an epoch replace those of before, which take the "
          "last step's with them: they come again") {
  scratch_folder folder;
  settings options;
  options.logdir = folder.path().string();
  leave_epoch(options);
  std::filesystem::remove(only_event_file(folder.path()));
  options.resume = true;
  report{options, 3, 0}.add(epoch_row(1, 3));
  auto records = records_of(read_text(only_event_file(folder.path())));
  REQUIRE(records.size() == 1 + 1 + 2 + 4);
  // After a double of time and its key: the run goes on with step 3.
  CHECK(records[1].substr(9) == "\x10\x03\x3a\x02\x08\x01");
  CHECK(contains(records[2], "loss/training"));
  CHECK(contains(records[3], "learning_rate"));
  CHECK(contains(records[4], "loss/held_out"));
  for (std::size_t i = 2; i < records.size(); ++i)
    CHECK(number_at(records[i], 10, 1) == 3);
}

TEST_CASE("metrics that begin where a resumed run of another file went on lack "
          "nothing of before") {
  scratch_folder folder;
  settings options;
  options.metrics = folder / "m.csv";
  options.resume = true;
  auto gap = [&](std::uint64_t step, std::uint64_t epochs) {
    return report{options, step, epochs}.gap();
  };
  auto later_step = [](std::uint64_t step) {
    auto row = step_row(step);
    row.epoch = 5;
    return row;
  };
  metrics_file{options.metrics, {later_step(93), later_step(94)}};
  CHECK(gap(94, 4).empty());
  CHECK(gap(95, 4) == options.metrics + ": the row of step 95 is missing");
  CHECK(gap(94, 5) == options.metrics + ": the row of epoch 5 is missing");
  // The run went on from an epoch's last step to its held-out images.
  metrics_file{options.metrics, {epoch_row(4, 92)}};
  CHECK(gap(92, 4).empty());
  CHECK(gap(93, 4) == options.metrics + ": the row of step 93 is missing");
  // It was killed before its first step.
  metrics_file{options.metrics, {}};
  CHECK(gap(92, 4).empty());
}

TEST_CASE(
    "the metrics of a folder of logs are refused where those of a name of "
    "their own would be") {
  scratch_folder folder;
  std::filesystem::create_directory(folder / "log");
  settings options;
  options.logdir = (folder / "log").string();
  options.checkpoint = folder.path().string();
  auto refusal = [&] {
    return message_of([&] { require_report_files(options); });
  };
  auto metrics = folder / "log" / "metrics.csv";
  std::string said;
  {
    printing_to there{metrics};
    said = refusal();
  }
  CHECK(said
        == fmt::format("--logdir: expected a file of its own, found {}, which "
                       "this program prints to",
                       metrics.string()));
  std::filesystem::remove(metrics);
  std::filesystem::create_symlink(folder / "checkpoint.pt", metrics);
  CHECK(refusal()
        == fmt::format("--logdir: expected another name than those of the "
                       "checkpoint, found {}",
                       (folder / "checkpoint.pt").string()));
}

TEST_CASE("metrics of a folder of logs that are a link stay one, and the chart "
          "is in the folder") {
  scratch_folder folder;
  std::filesystem::create_directory(folder / "log");
  settings options;
  options.logdir = (folder / "log").string();
  metrics_file{folder / "m.csv", {}};
  auto link = folder / "log" / "metrics.csv";
  std::filesystem::create_symlink(folder / "m.csv", link);
  report run{options, 0, 0};
  run.add(step_row(1));
  CHECK(run.finish() == folder / "log" / "chart.svg");
  CHECK(std::filesystem::is_symlink(link));
  CHECK(read_metrics(folder / "m.csv").size() == 1);
}
