#include "trainer/output/atomic_file.hpp"
#include "trainer/output/chart.hpp"
#include "trainer/output/checkpoint_lock.hpp"
#include "trainer/output/crc32c.hpp"
#include "trainer/output/event_file.hpp"
#include "trainer/output/locked_file.hpp"
#include "trainer/output/metrics_file.hpp"
#include "trainer/output/progress.hpp"
#include "trainer/output/report.hpp"

#include "trainer/report_files.hpp"
#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pty.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <future>

using namespace syncnorm::train;

namespace {

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream{path, std::ios::binary} << text;
}

/// While it lives, no file grows beyond `bytes`: a full disk for one process.
class small_disk {
public:
  explicit small_disk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }

  small_disk(const small_disk&) = delete;
  small_disk& operator=(const small_disk&) = delete;

  ~small_disk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t result = 0;
  for (auto at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1))
    ++result;
  return result;
}

} // namespace

TEST_CASE("CRC-32C gives the values of RFC 3720") {
  CHECK(crc32c("123456789") == 0xe3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aaU);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43U);
}

TEST_CASE("an event has the bytes that TensorBoard's own writer gives it") {
  // tensorboard.compat.proto: Event(wall_time=1.5, step=300, summary=Summary(
  // value=[Summary.Value(tag="loss", simple_value=0.5)])).SerializeToString()
  const std::string event{"\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\xac\x02"
                          "\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x00\x3f",
                          27};
  CHECK(scalar_event(1.5, 300, "loss", 0.5F) == event);
  // Event(wall_time=1.5, file_version="brain.Event:2")
  const std::string version{"\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x1a\x0d"
                            "brain.Event:2",
                            24};
  CHECK(version_event(1.5) == version);
  // Event(wall_time=1.5, step=300, session_log=SessionLog(status=START))
  const std::string session{"\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\xac\x02"
                            "\x3a\x02\x08\x01",
                            16};
  CHECK(session_event(1.5, 300) == session);
}

TEST_CASE("a record is framed by its length and two masked "
          "checksums") {
  auto record = tf_record("abc");
  REQUIRE(record.size() == 8 + 4 + 3 + 4);
  CHECK(record.substr(0, 8) == std::string{"\x03\0\0\0\0\0\0\0", 8});
  CHECK(record.substr(12, 3) == "abc");
  auto unmasked = [&](std::size_t at) {
    std::uint32_t x = 0;
    for (std::size_t i = 0; i < 4; ++i)
      x |= std::uint32_t{static_cast<std::uint8_t>(record[at + i])} << 8 * i;
    x -= 0xa282ead8U;
    return x >> 17 | x << 15;
  };
  CHECK(unmasked(8) == crc32c(record.substr(0, 8)));
  CHECK(unmasked(15) == crc32c("abc"));
}

TEST_CASE("a run's folder of logs gets an event file, with what each step and "
          "each epoch measured, and a chart") {
  scratch_folder folder;
  settings options;
  options.logdir = (folder / "new" / "log").string();
  {
    report run{options, 0, 0};
    for (std::uint64_t step = 1; step <= 2; ++step)
      run.add(step_row(step));
    run.add(epoch_row(1, 2));
    CHECK(run.finish() == folder / "new" / "log" / "chart.svg");
  }
  auto records = records_of(read_text(only_event_file(options.logdir)));
  const std::vector<std::pair<std::uint64_t, std::string>> expected{
      {1, "loss/training"},      {1, "learning_rate"},
      {2, "loss/training"},      {2, "learning_rate"},
      {2, "loss/held_out"},      {2, "accuracy/held_out"},
      {2, "time/waiting_share"}, {2, "time/samples_per_second"}};
  REQUIRE(records.size() == 1 + expected.size());
  CHECK(contains(records[0], "brain.Event:2"));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [step, tag] = expected[i];
    const auto& record = records[i + 1];
    // A double of time before it, the key of the step between.
    CHECK(number_at(record, 10, 1) == step);
    CHECK(contains(record, tag));
  }
}

TEST_CASE("the event file of a run that goes on says from which step on what "
          "others say does not count") {
  scratch_folder folder;
  settings options;
  options.logdir = folder.path().string();
  options.resume = true;
  report{options, 3, 0};
  auto records = records_of(read_text(only_event_file(folder.path())));
  REQUIRE(records.size() == 2);
  CHECK(contains(records[0], "brain.Event:2"));
  // After a double of time and its key.
  CHECK(records[1].substr(9) == "\x10\x04\x3a\x02\x08\x01");
}

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

namespace {

/// What a run says that is to write metrics there.
std::string report_to(const std::filesystem::path& file) {
  settings options;
  options.metrics = file;
  return message_of([&] {
    report run{options, 0, 0};
    run.add(step_row(1));
    run.finish();
  });
}

} // namespace

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

TEST_CASE("events are with the system after each step: a process that is "
          "killed leaves those of its checkpoint") {
  scratch_folder folder;
  settings options;
  options.logdir = folder.path().string();
  report run{options, 0, 0};
  for (std::size_t step = 1; step <= 3; ++step) {
    run.add(step_row(step));
    auto file = read_text(only_event_file(folder.path()));
    CHECK(records_of(file).size() == 1 + 2 * step);
  }
}

TEST_CASE("what is no file of metrics is not replaced by one") {
  scratch_folder folder;
  auto refusal = [&](const char* name, const std::string& content) {
    write_text(folder / name, content);
    settings options;
    options.metrics = folder / name;
    auto text = message_of([&] { report{options, 0, 0}; });
    CHECK(read_text(folder / name) == content);
    return text;
  };
  for (const auto& content : {std::string{"digits"}, std::string(5000, '\0')})
    CHECK(contains(refusal("images", content),
                   "images: expected metrics of an earlier run, or no file, "
                   "found another file"));
  write_text(folder / "empty.csv", "");
  CHECK(report_to(folder / "empty.csv") == "nothing was thrown");
  CHECK(report_to(folder / "empty.csv") == "nothing was thrown");
}

TEST_CASE("metrics under a name of the checkpoint's are refused") {
  scratch_folder folder;
  settings options;
  options.checkpoint = folder.path().string();
  for (const auto* name :
       {"checkpoint.pt", "checkpoint.pt.tmp", "checkpoint.lock"}) {
    options.metrics = folder / name;
    CHECK(contains(message_of([&] {
                     report{options, 0, 0};
                   }),
                   "--metrics: expected another name than those of the "
                   "checkpoint, found "));
    CHECK(!std::filesystem::exists(folder / name));
  }
  // Also of one that is not there yet.
  options.metrics = folder / "link.csv";
  std::filesystem::create_symlink("checkpoint.pt", options.metrics);
  CHECK(contains(message_of([&] {
                   report{options, 0, 0};
                 }),
                 "--metrics: expected another name than those of the"));
  options.metrics = folder / "metrics.csv";
  CHECK(message_of([&] { report{options, 0, 0}; }) == "nothing was thrown");
}

TEST_CASE("a chart that could not be written is refused before the first "
          "step") {
  scratch_folder folder;
  settings options;
  options.metrics = folder / "m.csv";
  std::filesystem::create_directory(folder / "m.svg");
  CHECK(contains(message_of([&] {
                   report{options, 0, 0};
                 }),
                 "m.svg: expected a file or none, found something else"));
  CHECK(!std::filesystem::exists(folder / "m.csv"));
}

TEST_CASE("what stands where metrics or chart are written before they are "
          "renamed is refused before anything is computed") {
  scratch_folder folder;
  settings options;
  options.metrics = folder / "m.csv";
  auto refusal = [&] {
    return message_of([&] { require_report_files(options); });
  };
  for (const std::string name : {"m.csv.tmp", "m.svg.tmp"}) {
    auto text = name + ": expected a file or none, found ";
    std::filesystem::create_directory(folder / name);
    CHECK(contains(refusal(), text + "a folder"));
    std::filesystem::remove(folder / name);
    std::filesystem::create_symlink("m.txt", folder / name);
    CHECK(contains(refusal(), text + "a link"));
    std::filesystem::remove(folder / name);
    // Left by a process that was killed.
    write_text(folder / name, "");
    CHECK(refusal() == "nothing was thrown");
    std::filesystem::remove(folder / name);
  }
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

TEST_CASE("a link to a file of metrics stays one, and the file, or the one to "
          "be, gets the rows and the chart beside it") {
  scratch_folder folder;
  std::filesystem::create_directory(folder / "real");
  metrics_file{folder / "real" / "m.csv", {step_row(7)}};
  for (const auto* name : {"m.csv", "new.csv"}) {
    auto link = folder / name;
    auto target = folder / "real" / name;
    std::filesystem::create_symlink(std::filesystem::path{"real"} / name, link);
    CHECK(report_to(link) == "nothing was thrown");
    CHECK(std::filesystem::is_symlink(link));
    CHECK(read_metrics(target).size() == 1);
  }
  for (const auto* chart : {"m.svg", "new.svg"}) {
    CHECK(std::filesystem::exists(folder / "real" / chart));
    CHECK_FALSE(std::filesystem::exists(folder / chart));
  }
}

TEST_CASE("a chart that is a link stays one") {
  scratch_folder folder;
  std::filesystem::create_symlink("real.svg", folder / "m.svg");
  CHECK(report_to(folder / "m.csv") == "nothing was thrown");
  CHECK(std::filesystem::is_symlink(folder / "m.svg"));
  CHECK(std::filesystem::is_regular_file(folder / "real.svg"));
}

TEST_CASE("a chart that is a link to the metrics or the checkpoint is refused "
          "before the first step") {
  scratch_folder folder;
  settings options;
  options.checkpoint = folder.path().string();
  options.metrics = folder / "m.csv";
  for (const auto* target : {"m.csv", "checkpoint.pt"}) {
    std::filesystem::create_symlink(target, folder / "m.svg");
    CHECK(contains(message_of([&] {
                     report{options, 0, 0};
                   }),
                   "expected another file than the metrics and the "
                   "checkpoint"));
    CHECK_FALSE(std::filesystem::exists(folder / target));
    std::filesystem::remove(folder / "m.svg");
  }
}

TEST_CASE("a drawing that is no chart is not replaced by one") {
  scratch_folder folder;
  CHECK(report_to(folder / "m.csv") == "nothing was thrown");
  CHECK(report_to(folder / "m.csv") == "nothing was thrown");
  write_text(folder / "m.svg", "");
  CHECK(report_to(folder / "m.csv") == "nothing was thrown");
  const std::string drawing =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"8\">\n</svg>\n";
  write_text(folder / "m.svg", drawing);
  settings options;
  options.metrics = folder / "m.csv";
  CHECK(contains(message_of([&] { require_report_files(options); }),
                 "m.svg: expected a chart of an earlier run, or no file, found "
                 "another file"));
  CHECK(read_text(folder / "m.svg") == drawing);
}

TEST_CASE("metrics in a folder that is not there are refused by the option") {
  scratch_folder folder;
  settings options;
  options.metrics = folder / "none" / "m.csv";
  CHECK(message_of([&] { require_report_files(options); })
        == fmt::format("--metrics: {}: expected a folder {}, found none",
                       options.metrics, (folder / "none").string()));
  options.metrics = "m.csv";
  CHECK_NOTHROW(require_report_files(options));
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

TEST_CASE("metrics do not replace the file that the program prints to, by "
          "whatever name") {
  scratch_folder folder;
  auto link = folder / "link";
  std::filesystem::create_symlink("/proc/self/fd/1", link);
  std::vector<std::string> said;
  {
    printing_to there{folder / "out"};
    for (const auto& name : {link, folder / "out"})
      said.push_back(report_to(name));
  }
  for (const auto& text : said)
    CHECK(contains(text, "--metrics: expected a file of its own, found "));
  CHECK(std::filesystem::is_symlink(link));
  CHECK(read_text(folder / "out").empty());
}

TEST_CASE(
    "metrics do not go to the pipe or the terminal that the program prints "
    "to, by whatever name; a device that keeps nothing is for both") {
  scratch_folder folder;
  auto pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0666) == 0);
  auto reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  int main = -1;
  int side = -1;
  char terminal[64] = {};
  REQUIRE(openpty(&main, &side, terminal, nullptr, nullptr) == 0);
  std::vector<std::string> said;
  for (const std::filesystem::path& printed :
       {pipe, std::filesystem::path{terminal}}) {
    printing_to there{printed};
    for (const auto& name : {std::filesystem::path{"/dev/stdout"}, printed})
      said.push_back(report_to(name));
  }
  for (const auto& text : said)
    CHECK(contains(text, "--metrics: expected a file of its own, found "));
  {
    printing_to there{"/dev/null"};
    said.push_back(report_to("/dev/null"));
  }
  CHECK(said.back() == "nothing was thrown");
  for (auto x : {reader, main, side})
    ::close(x);
}

TEST_CASE("metrics under a chart's name are refused") {
  scratch_folder folder;
  CHECK(contains(report_to(folder / "m.svg"),
                 "--metrics: expected another name than that of the chart"));
  CHECK_FALSE(std::filesystem::exists(folder / "m.svg"));
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

TEST_CASE("a file is replaced whole, or kept when the disk is full") {
  scratch_folder folder;
  auto file = folder / "checkpoint";
  write_atomically(file, "old");
  {
    small_disk limit{1000};
    auto message =
        message_of([&] { write_atomically(file, std::string(5000, 'x')); });
    CHECK(contains(message, "checkpoint: cannot be written: "));
  }
  CHECK(read_text(file) == "old");
  CHECK_FALSE(std::filesystem::exists(folder / "checkpoint.tmp"));
  write_atomically(file, "new");
  CHECK(read_text(file) == "new");
}

TEST_CASE("a file that is replaced keeps its permissions") {
  scratch_folder folder;
  auto file = folder / "checkpoint";
  auto rights_of = [](const std::filesystem::path& path) {
    return std::filesystem::status(path).permissions();
  };
  using enum std::filesystem::perms;
  for (auto rights :
       {owner_read | owner_write,
        owner_read | owner_write | group_read | group_write | others_read}) {
    write_atomically(file, "old");
    std::filesystem::permissions(file, rights);
    // Left by a process that was killed.
    write_text(folder / "checkpoint.tmp", "");
    write_atomically(file, "new");
    CHECK(rights_of(file) == rights);
    CHECK(read_text(file) == "new");
  }
}

TEST_CASE("of two who write a file at the same time each writes it whole") {
  scratch_folder folder;
  auto file = folder / "checkpoint";
  constexpr std::size_t size = std::size_t{1} << 20;
  write_atomically(file, std::string(size, 'z'));
  std::atomic<int> writing{2};
  auto write_often = [&](char content) {
    auto result = message_of([&] {
      for (int i = 0; i < 50; ++i)
        write_atomically(file, std::string(size, content));
    });
    --writing;
    return result;
  };
  auto one = std::async(std::launch::async, write_often, 'a');
  auto other = std::async(std::launch::async, write_often, 'b');
  std::size_t torn = 0;
  while (writing > 0) {
    auto text = read_text(file);
    torn += text != std::string(size, text.empty() ? ' ' : text[0]) ? 1 : 0;
  }
  CHECK(one.get() == "nothing was thrown");
  CHECK(other.get() == "nothing was thrown");
  CHECK(torn == 0);
  CHECK_FALSE(std::filesystem::exists(folder / "checkpoint.tmp"));
}

TEST_CASE("a file that another one does not stop writing is an error that "
          "names both, and stays as it was") {
  scratch_folder folder;
  auto file = folder / "checkpoint";
  write_atomically(file, "old");
  constexpr std::chrono::milliseconds none{0};
  locked_file other{folder / "checkpoint.tmp", none};
  REQUIRE(other.code() == 0);
  auto message = message_of([&] { write_atomically(file, "new", none); });
  CHECK(message
        == file.string() + ": cannot be written: another process writes "
               + file.string() + ".tmp");
  CHECK(read_text(file) == "old");
  CHECK(is_open_as(other.number(), folder / "checkpoint.tmp"));
}

TEST_CASE("what a killed process has left of a file is used again") {
  scratch_folder folder;
  write_text(folder / "checkpoint.tmp", "longer than what is written");
  write_atomically(folder / "checkpoint", "new");
  CHECK(read_text(folder / "checkpoint") == "new");
  CHECK_FALSE(std::filesystem::exists(folder / "checkpoint.tmp"));
}

TEST_CASE("one run at a time keeps a folder for its checkpoints, and leaves "
          "nothing there") {
  scratch_folder folder;
  auto refusal = [&] {
    return message_of([&] { checkpoint_lock{folder.path()}; });
  };
  // Left by a process that was killed.
  write_text(folder / "checkpoint.lock", "");
  {
    checkpoint_lock first{folder.path()};
    CHECK(refusal()
          == folder.path().string()
                 + ": another run writes its checkpoint here");
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(refusal() == "nothing was thrown");
  std::filesystem::create_directory(folder / "checkpoint.lock");
  CHECK(contains(refusal(), "checkpoint.lock: expected a file or none, found a "
                            "folder"));
}

TEST_CASE("the folders that were made for a lock go with it as far as they are "
          "empty") {
  scratch_folder folder;
  { checkpoint_lock nothing_saved{folder / "a/b/c/"}; }
  CHECK(std::filesystem::is_empty(folder.path()));
  {
    checkpoint_lock first{folder / "a/b/c"};
    write_text(folder / "a/file", "of somebody else");
  }
  CHECK(std::filesystem::exists(folder / "a/file"));
  CHECK_FALSE(std::filesystem::exists(folder / "a/b"));
  CHECK(contains(message_of([&] {
                   require_writable_folder(folder / "new/b"
                                           / std::string(300, 'x'));
                 }),
                 "cannot be made: File name too long"));
  CHECK_FALSE(std::filesystem::exists(folder / "new"));
}

namespace {

const std::string no_other_user = "the user cannot be changed";

/// What `f` throws in a process that nobody gave any rights.
template <class F>
std::string message_without_rights(F f) {
  int ends[2] = {};
  REQUIRE(::pipe(ends) == 0);
  auto child = ::fork();
  if (child == 0) {
    constexpr uid_t nobody = 65534;
    auto is_nobody = ::getuid() != 0 || ::setuid(nobody) == 0;
    auto text = is_nobody ? message_of(f) : no_other_user;
    auto written = ::write(ends[1], text.data(), text.size());
    ::_exit(written < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string result(1000, ' ');
  auto n = ::read(ends[0], result.data(), result.size());
  result.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return result;
}

} // namespace

TEST_CASE("a folder that may be written to and not read is refused before "
          "anything is changed: it could not be flushed") {
  scratch_folder folder;
  auto closed = folder / "closed";
  std::filesystem::create_directory(closed);
  write_text(closed / "file", "old");
  ::chmod(folder.path().c_str(), 0755);
  // For all others, if the test runs as root.
  ::chmod(closed.c_str(), 0333);
  if (message_without_rights([] {}) == no_other_user) {
    MESSAGE("skipped: this machine does not let root be somebody else");
    return;
  }
  CHECK(contains(
      message_without_rights([&] { require_writable_folder(closed); }),
      "closed: cannot be read, and so not flushed: Permission denied"));
  CHECK(contains(
      message_without_rights([&] { write_atomically(closed / "file", "new"); }),
      "file: cannot be written: Permission denied"));
  ::chmod(closed.c_str(), 0755);
  CHECK(read_text(closed / "file") == "old");
  CHECK_FALSE(std::filesystem::exists(closed / "file.tmp"));
}

TEST_CASE("a file that cannot be read is not replaced: it may be something "
          "else than metrics or a chart") {
  scratch_folder folder;
  ::chmod(folder.path().c_str(), 0777);
  if (message_without_rights([] {}) == no_other_user) {
    MESSAGE("skipped: this machine does not let root be somebody else");
    return;
  }
  settings options;
  options.metrics = folder / "m.csv";
  for (const auto* name : {"m.csv", "m.svg"}) {
    write_text(folder / name, "digits");
    // For its owner, too.
    ::chmod((folder / name).c_str(), 0);
    CHECK(
        contains(message_without_rights([&] {
                   report{options, 0, 0};
                 }),
                 name + std::string{": cannot be opened: Permission denied"}));
    ::chmod((folder / name).c_str(), 0600);
    CHECK(read_text(folder / name) == "digits");
    std::filesystem::remove(folder / name);
  }
}

TEST_CASE("a file that is protected against writing is not replaced, and is "
          "refused before anything is computed") {
  scratch_folder folder;
  ::chmod(folder.path().c_str(), 0777);
  if (message_without_rights([] {}) == no_other_user) {
    MESSAGE("skipped: this machine does not let root be somebody else");
    return;
  }
  auto file = folder / "m.csv";
  metrics_file{file, {step_row(1)}};
  auto before = read_text(file);
  ::chmod(file.c_str(), 0444);
  settings options;
  options.metrics = file;
  auto refusal = file.string() + ": cannot be written: Permission denied";
  CHECK(message_without_rights([&] { require_report_files(options); })
        == refusal);
  CHECK(message_without_rights([&] { write_atomically(file, "new"); })
        == refusal);
  CHECK(read_text(file) == before);
}

TEST_CASE("a folder that cannot be written to is refused by name") {
  scratch_folder folder;
  write_text(folder / "file", "");
  CHECK(contains(message_of([&] { require_writable_folder(folder / "file"); }),
                 "file: cannot be"));
  CHECK(contains(
      message_of([&] { write_atomically(folder / "none" / "file", "x"); }),
      "file: cannot be written: No such file"));
  CHECK(contains(message_of([] {
                   growing_file file{"/dev/full", false};
                   file.append("x");
                   file.flush();
                 }),
                 "/dev/full: cannot be written: No space left"));
}

TEST_CASE("a file that is deleted while it grows is an error: what is appended "
          "is lost") {
  scratch_folder folder;
  growing_file file{folder / "rows", false};
  file.append("x");
  file.flush();
  std::filesystem::remove(folder / "rows");
  CHECK(message_of([&] {
          file.append("y");
          file.flush();
        })
        == (folder / "rows").string() + ": was deleted");
}

TEST_CASE("a chart draws each series and leaves out what is not "
          "finite") {
  chart_series series{"a<b", {{1, 2}, {2, NAN}, {4, 8, 1}}};
  auto svg = render_svg({{"title", "x", "y", {series}, true}});
  CHECK(count(svg, "<polyline") == 1);
  CHECK(contains(svg, "a&lt;b"));
  CHECK_FALSE(contains(svg, "nan"));
  CHECK(svg.ends_with("</svg>\n"));
  // Two points are left of three, the first and the last of the
  // x axis.
  CHECK(contains(svg, "points=\"64.0,"));
  CHECK(contains(svg, "444.0,"));
  CHECK(render_svg({{"empty", "x", "y", {}}}).ends_with("</svg>\n"));
}

TEST_CASE("a chart shows a series of one point, which has no line") {
  chart_series one{"one", {{1, NAN}, {2, 5}}};
  chart_series two{"two", {{1, 4}, {2, 6}}};
  CHECK(count(render_svg({{"title", "x", "y", {one, two}}}), "<circle") == 1);
  CHECK(count(render_svg({{"title", "x", "y", {two}}}), "<circle") == 0);
}

TEST_CASE("a chart with powers of ten along y has 1, 10 and 100 at the same "
          "distances, and leaves out zero") {
  chart_panel panel{
      "title", "x", "y", {{"a", {{0, 1}, {1, 10}, {2, 0}, {3, 100}}}}};
  panel.log10_y = true;
  auto svg = render_svg({panel});
  CHECK(contains(svg, "64.0,272.0 190.7,154.0 444.0,36.0 "));
  for (const auto* label : {">1<", ">10<", ">100<"})
    CHECK(contains(svg, label));
  CHECK_FALSE(contains(svg, "inf"));
}

namespace {

/// What a program writes to a terminal, or to a file.
struct written {
  std::string terminal;
  std::string file;
};

/// What comes before `mark`.
std::string read_to(int descriptor, const std::string& mark) {
  std::string result;
  char some = 0;
  while (!result.ends_with(mark)) {
    REQUIRE(::read(descriptor, &some, 1) == 1);
    result += some;
  }
  return result.substr(0, result.size() - mark.size());
}

/// @param draw    uses a display.
/// @param columns of the terminal; 0 if it does not say.
template <class F>
written draw_on_both(F draw, unsigned short columns = 0) {
  written result;
  int main = -1;
  int side = -1;
  winsize size{};
  size.ws_col = columns;
  REQUIRE(openpty(&main, &side, nullptr, nullptr, &size) == 0);
  auto* terminal = fdopen(side, "w");
  draw(terminal);
  std::fputs("that is all", terminal);
  std::fflush(terminal);
  result.terminal = read_to(main, "that is all");
  std::fclose(terminal);
  ::close(main);
  scratch_folder folder;
  auto* file = std::fopen((folder / "out").c_str(), "w");
  draw(file);
  std::fclose(file);
  result.file = read_text(folder / "out");
  return result;
}

} // namespace

TEST_CASE("progress is redrawn on a terminal; elsewhere there is a line an "
          "epoch") {
  progress_state state{1, 2, 64, 1437, 0.5, 0.1, 0.25};
  auto text = draw_on_both([&](std::FILE* out) {
    progress_display display{out};
    display.note("begin");
    display.show(state);
    display.finish(state, epoch_row(1, 23));
  });
  auto line = epoch_line(state, epoch_row(1, 23));
  CHECK(text.file == "begin\n" + line + "\n");
  const std::string erase = "\r\033[K";
  CHECK(text.terminal
        == erase + "begin\r\n" + erase + progress_line(state) + erase + line
               + "\r\n");
}

TEST_CASE("progress takes one row of a terminal, however narrow: a second one "
          "would stay") {
  progress_state state{1, 2, 64, 1437, 0.5, 0.1, 0.25};
  auto line = progress_line(state);
  auto columns = [&](std::size_t count) {
    return draw_on_both(
               [&](std::FILE* out) { progress_display{out}.show(state); },
               static_cast<unsigned short>(count))
        .terminal;
  };
  const std::string erase = "\r\033[K";
  CHECK(columns(line.size() + 1) == erase + line);
  CHECK(columns(line.size()) == erase + line.substr(0, line.size() - 1));
  CHECK(columns(40) == erase + line.substr(0, 39));
  CHECK(columns(1) == erase);
}

TEST_CASE("the progress line says where the run stands") {
  progress_state state{3, 15, 832, 1437, 0.24713, 0.0832, 0.041};
  // 10000 samples a second, and 605 + 12 * 1437 samples to go.
  CHECK(progress_line(state)
        == "epoch  3/15   832/1437  loss 0.2471  10000 "
           "samples/s  waiting  4.1 "
           "%  ETA 0:02");
  auto line = epoch_line(state, epoch_row(3, 69));
  CHECK(contains(line, "held-out loss 0.1000  accuracy 97.00 %"));
}

TEST_CASE("the time left counts an evaluation after each epoch") {
  progress_state state{3, 15, 832, 1437, 0.24713, 0.0832, 0.041};
  state.evaluation = 10;
  // 1.8 s of steps; after the epoch its own evaluation has been.
  CHECK(contains(progress_line(state), "ETA 2:12"));
  CHECK(contains(epoch_line(state, epoch_row(3, 69)), "ETA 2:02"));
}
