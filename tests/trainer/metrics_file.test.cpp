#include "trainer/output/metrics_file.hpp"
#include "trainer/output/report.hpp"

#include "trainer/report_files.hpp"
#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace syncnorm::train;

TEST_CASE("a row of metrics comes back with the same bits") {
  for (const auto& row : {step_row(7), epoch_row(2, 46)}) {
    auto again = parse_csv(to_csv(row));
    REQUIRE(again);
    CHECK(again->loss == row.loss);
    CHECK(again->step == row.step);
    CHECK(again->held_out_accuracy == row.held_out_accuracy);
    CHECK(again->is_epoch() == row.is_epoch());
  }
}

TEST_CASE("a row of another kind, with more behind it or with no number, is "
          "no row of metrics") {
  auto text = to_csv(epoch_row(2, 46));
  CHECK(parse_csv(text));
  CHECK_FALSE(parse_csv("step" + text.substr(5)));
  CHECK_FALSE(parse_csv(text + ",1"));
  CHECK_FALSE(parse_csv(text + "x"));
}

TEST_CASE("a metrics file loses a line that was cut off, and "
          "refuses others") {
  scratch_folder folder;
  metrics_file{folder / "m.csv", {step_row(1), step_row(2)}};
  auto text = read_text(folder / "m.csv");
  write_text(folder / "m.csv", text.substr(0, text.size() - 5));
  CHECK(read_metrics(folder / "m.csv").size() == 1);
  write_text(folder / "m.csv", text + "something else\n");
  CHECK(contains(message_of([&] { (void) read_metrics(folder / "m.csv"); }),
                 "m.csv: line 4: expected a row of metrics"));
  write_text(folder / "m.csv", "a,b\n");
  CHECK(contains(message_of([&] { (void) read_metrics(folder / "m.csv"); }),
                 "m.csv: line 1"));
}

TEST_CASE("a resumed run keeps the rows up to its checkpoint, "
          "and no others") {
  scratch_folder folder;
  settings options;
  options.metrics = folder / "m.csv";
  {
    report first{options, 0, 0};
    for (std::uint64_t step = 1; step <= 5; ++step)
      first.add(step_row(step));
  }
  options.resume = true;
  report second{options, 3, 0};
  second.add(step_row(4));
  auto rows = read_metrics(options.metrics);
  REQUIRE(rows.size() == 4);
  CHECK(rows.back().step == 4);
}

TEST_CASE("a run that does not go on keeps no rows of before") {
  scratch_folder folder;
  settings options;
  options.metrics = folder / "m.csv";
  metrics_file{folder / "m.csv", {step_row(1), step_row(2)}};
  report{options, 2, 0};
  CHECK(read_metrics(options.metrics).empty());
}

TEST_CASE("a folder of logs keeps its own metrics, so that the chart of a run "
          "that goes on has the steps of before") {
  scratch_folder folder;
  settings options;
  options.logdir = folder.path().string();
  auto run = [&](std::uint64_t step, std::uint64_t last) {
    report mine{options, step, 0};
    for (auto i = step + 1; i <= last; ++i)
      mine.add(step_row(i));
    return mine.finish();
  };
  CHECK(run(0, 9) == folder / "chart.svg");
  auto whole = read_text(folder / "chart.svg");
  std::filesystem::remove(folder / "chart.svg");
  std::filesystem::remove(folder / "metrics.csv");
  run(0, 5);
  options.resume = true;
  run(5, 9);
  CHECK(read_text(folder / "chart.svg") == whole);
  CHECK(read_metrics(folder / "metrics.csv").size() == 9);
}

TEST_CASE("a resumed run says which rows are missing between two of its "
          "metrics") {
  scratch_folder folder;
  settings options;
  options.metrics = folder / "m.csv";
  metrics_file{folder / "m.csv",
               {step_row(3), step_row(4), step_row(8), epoch_row(1, 8)}};
  options.resume = true;
  CHECK(report{options, 8, 1}.gap()
        == options.metrics + ": the rows of steps 5 to 7 are missing");
  CHECK(report{options, 4, 0}.gap().empty());
  metrics_file{folder / "m.csv", {step_row(3), step_row(5)}};
  CHECK(report{options, 5, 0}.gap()
        == options.metrics + ": the row of step 4 is missing");
}

TEST_CASE("a resumed run says which rows are missing at the end of its "
          "metrics") {
  scratch_folder folder;
  settings options;
  options.metrics = folder / "m.csv";
  auto gap = [&](std::uint64_t step, std::uint64_t epochs) {
    return report{options, step, epochs}.gap();
  };
  {
    report first{options, 0, 0};
    for (std::uint64_t step = 1; step <= 5; ++step)
      first.add(step_row(step));
  }
  options.resume = true;
  CHECK(gap(8, 0)
        == options.metrics + ": the rows of steps 6 to 8 are missing");
  CHECK(gap(6, 1) == options.metrics + ": the row of step 6 is missing");
  CHECK(gap(5, 1) == options.metrics + ": the row of epoch 1 is missing");
  CHECK(gap(5, 0).empty());
  report{options, 5, 0}.add(epoch_row(1, 5));
  CHECK(gap(5, 1).empty());
  CHECK(gap(3, 0).empty());
  // A file of another name begins there.
  options.metrics = folder / "other.csv";
  CHECK(gap(3, 0).empty());
}

TEST_CASE("one run at a time writes to a file of metrics") {
  scratch_folder folder;
  auto path = folder / "m.csv";
  {
    metrics_file first{path, {step_row(1)}};
    CHECK(contains(report_to(path),
                   "m.csv: another run writes its metrics here"));
    first.add(step_row(2));
    CHECK(read_metrics(path).size() == 2);
    // Also where the file itself is gone.
    std::filesystem::remove(path);
    CHECK(contains(report_to(path), "another run writes its metrics here"));
  }
  CHECK_FALSE(std::filesystem::exists(folder / "m.csv.lock"));
  CHECK(report_to(path) == "nothing was thrown");
}

TEST_CASE("metrics that go to a pipe have no chart beside it") {
  scratch_folder folder;
  auto pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0666) == 0);
  auto reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  settings options;
  options.metrics = pipe;
  CHECK_FALSE(report{options, 0, 0}.finish());
  CHECK_FALSE(std::filesystem::exists(folder / "pipe.svg"));
  ::close(reader);
}

TEST_CASE(
    "a pipe is not closed before it has all metrics: its reader would take "
    "that for the end") {
  scratch_folder folder;
  auto pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0666) == 0);
  auto reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  auto watch = ::inotify_init1(IN_NONBLOCK);
  REQUIRE(::inotify_add_watch(watch, pipe.c_str(), IN_CLOSE_WRITE) >= 0);
  metrics_file file{pipe, {step_row(1)}};
  file.add(step_row(2));
  std::string text(4096, ' ');
  CHECK(::read(watch, text.data(), text.size()) == -1);
  auto n = ::read(reader, text.data(), text.size());
  CHECK(count(text.substr(0, static_cast<std::size_t>(n)), "\n") == 3);
  ::close(watch);
  ::close(reader);
}
