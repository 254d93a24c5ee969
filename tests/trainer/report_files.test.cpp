#include "trainer/output/atomic_file.hpp"
#include "trainer/output/metrics_file.hpp"
#include "trainer/output/report.hpp"

#include "trainer/report_files.hpp"
#include "trainer/scratch_folder.hpp"
#include "trainer/without_rights.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pty.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace syncnorm::train;

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
  // With a column more.
  CHECK(contains(refusal("wide", fmt::format("{},x\n1\n", metrics_header)),
                 "wide: expected metrics of an earlier run"));
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
  // In the folder in which the program runs.
  auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  options.metrics = "checkpoint.pt";
  CHECK(contains(message_of([&] {
                   report{options, 0, 0};
                 }),
                 "--metrics: expected another name than those of the"));
  std::filesystem::current_path(before);
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
  // By two links to a file that is not there.
  std::filesystem::create_symlink("third.csv", folder / "second.csv");
  std::filesystem::create_symlink("second.csv", folder / "first.csv");
  CHECK(report_to(folder / "first.csv") == "nothing was thrown");
  CHECK(std::filesystem::is_symlink(folder / "second.csv"));
  CHECK(read_metrics(folder / "third.csv").size() == 1);
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
