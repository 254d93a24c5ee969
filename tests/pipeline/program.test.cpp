#include "tests/pipeline/support.hpp"

#include <syncnorm/compat.hpp>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <thread>

using namespace pipeline::test;

namespace {

struct outcome {
  int code = -1;
  /// Of both streams.
  std::string output;

  [[nodiscard]] bool says(const std::string& text) const {
    return output.find(text) != std::string::npos;
  }
};

/// Runs the program with a shell's line of arguments, and what goes before it.
outcome run(const std::string& arguments, const std::string& before = "") {
  auto line = before + " " SYNCNORM_PIPELINE " " + arguments + " 2>&1";
  auto* pipe = ::popen(line.c_str(), "r");
  REQUIRE(pipe != nullptr);
  outcome result;
  std::array<char, 4096> bytes{};
  while (auto n = std::fread(bytes.data(), 1, bytes.size(), pipe))
    result.output.append(bytes.data(), n);
  result.code = WEXITSTATUS(::pclose(pipe));
  INFO(arguments);
  INFO(result.output);
  CHECK(result.code >= 0);
  return result;
}

/// A file of CSV, and the arguments to read it in batches of two.
struct csv_file : scratch_file {
  explicit csv_file(const std::string& text) : scratch_file{"records"} {
    std::ofstream{name} << text;
    arguments = "--batch=2 --input=" + name + " ";
  }

  std::string arguments;
};

void check_refused(const std::string& arguments, const std::string& text) {
  auto got = run(arguments);
  INFO(got.output);
  CHECK(got.code == 1);
  CHECK(got.says(text));
}

} // namespace

TEST_CASE("the mode says what a batch is normalized with, and what is saved") {
  csv_file input{"0\n2\n10\n14\n"};
  scratch_file state{"state"}, scores{"scores"};
  auto with = input.arguments + "--output=" + scores.name
              + " --state=" + state.name + " --mode=";
  // Each batch by itself: one deviation from its mean, the score of each.
  CHECK(run(with + "training").code == 0);
  CHECK(content(scores.name).substr(0, 2) == "0,");
  CHECK(content(scores.name)
        == "0,0.999995\n1,0.999995\n2,0.999999\n3,0.999999\n");
  CHECK(content(state.name).find("running_var") != std::string::npos);
  auto learned = content(state.name);
  scratch_file link{"link"};
  std::filesystem::create_hard_link(state.name, link.name);
  CHECK(run(with + "evaluation").code == 0);
  // Running mean 1.29, running variance 1.79: 0.1 of the second batch, 0.09 of
  // the first, the rest of 0 and 1.
  CHECK(content(scores.name)
        == "0,0.964189\n1,0.530677\n2,6.51014\n3,9.49987\n");
  // Nothing was learned or saved.
  CHECK(content(state.name) == learned);
  CHECK(std::filesystem::hard_link_count(state.name) == 2);
  // The second batch by all four: mean 6.5, variance 32.75.
  for (const std::string mode : {"", "--mode=online "}) {
    CHECK(run(mode + input.arguments + "--output=" + scores.name).code == 0);
    CHECK(content(scores.name)
          == "0,0.999995\n1,0.999995\n2,0.611593\n3,1.31056\n");
  }
}

TEST_CASE(
    "a state of the online mode evaluates each batch by all that was seen") {
  csv_file input{"0\n2\n10\n14\n"};
  scratch_file state{"state"}, scores{"scores"};
  auto with =
      input.arguments + "--output=" + scores.name + " --state=" + state.name;
  CHECK(run(with).code == 0);
  CHECK(run(with + " --mode=evaluation").code == 0);
  // Mean 6.5, variance 32.75.
  CHECK(content(scores.name)
        == "0,1.13582\n1,0.786334\n2,0.611593\n3,1.31056\n");
}

TEST_CASE("a batch has 64 records unless asked otherwise") {
  std::string text;
  for (int i = 0; i < 384; ++i)
    text += std::to_string(i) + "\n";
  csv_file input{text};
  CHECK(run("--input=" + input.name).says("batches: 6,"));
}

TEST_CASE("what to do with bad records is an option of the program") {
  csv_file input{"1,2\n3,x\n5,nan\n7,8\n"};
  check_refused(input.arguments, "line 2, column 2: expected a number");
  check_refused(input.arguments + "--bad-records=skip",
                "line 3, column 2: expected a finite number");
  auto got = run(input.arguments + "--bad-records=skip --nan=skip");
  CHECK(got.code == 0);
  CHECK(got.says("2 read, 2 scored, 0 lost, 1 malformed and 1 not finite "
                 "skipped"));
  CHECK(got.says("first skipped: " + input.name + ", line 2, column 2"));
  got = run(input.arguments + "--bad-records=skip --nan=pass");
  CHECK(got.code == 0);
  CHECK(got.says("1 not finite passed on"));
}

TEST_CASE("a state with what --nan=pass let through is gone on from, in each "
          "mode and with any split") {
  scratch_file state{"state"};
  for (const std::string mode : {"online", "training"})
    for (const std::string devices : {"cpu", "cpu,cpu,cpu"})
      for (const std::string records :
           {"inf,1\n", "1,1\n2,inf\n3,4\n", "nan,1\n-inf,2\n3,4\n"}) {
        CAPTURE(mode);
        CAPTURE(devices);
        CAPTURE(records);
        std::filesystem::remove(state.name);
        csv_file input{records};
        auto with = input.arguments + "--state=" + state.name
                    + " --nan=pass --devices=" + devices + " --mode=";
        CHECK(run(with + mode).code == 0);
        CHECK(run(with + mode).code == 0);
        CHECK(run(with + "evaluation").code == 0);
      }
}

TEST_CASE("options that make no sense are refused, and nothing is written") {
  csv_file input{"1,2\n3,4\n"};
  scratch_file scores{"scores"}, state{"state"};
  std::ofstream{scores.name} << "of the run before";
  std::ofstream{state.name} << "no state";
  auto with = input.arguments + "--output=" + scores.name + " ";
  check_refused(with + "--state=" + state.name, "expected a saved state");
  check_refused(with + "--devices=cuda:99",
                "--devices: expected some of those here, cpu");
  check_refused(with + "--devices=cpu,gpu", "got \"gpu\"");
  check_refused(with + "--devices=cpu,", "got \"\"");
  check_refused(with + "--in-flight=0", "expected 1 or more");
  check_refused(with + "--repeat=2", "--repeat: expected a file of IDX");
  check_refused(with + "--mode=guess", "--mode: expected");
  check_refused(with + "--mode=evaluation", "expected --state");
  check_refused(with + "--nan=drop", "--nan: expected");
  check_refused(with + "--syncnorm.deadline=-1s", "syncnorm.deadline");
  check_refused(with + "more", "unknown argument \"more\"");
  // Of CAF's: no actor would ever run.
  const std::string scheduler =
      syncnorm::compat::caf_line == 0 ? "scheduler." : "caf.scheduler.";
  for (const std::string name : {"max-threads", "max-throughput"})
    check_refused(with + "--" + scheduler + name + "=0",
                  scheduler + name + ": expected 1 or more, found 0");
  check_refused("", "--input: expected a file");
  CHECK(content(scores.name) == "of the run before");
}

TEST_CASE("a variable of the environment that its option does not take is "
          "named, where CAF reads any") {
  csv_file input{"1,2\n3,4\n"};
  for (const auto& [variable, expected] :
       {std::pair{"SYNCNORM_DEADLINE=soon", "a duration, such as 30s"},
        std::pair{"SYNCNORM_FAN_IN=many", "a whole number"},
        std::pair{"CAF_SCHEDULER_MAX_THREADS=2", ""}}) {
    const std::string text{variable};
    auto at = text.find('=');
    auto got = run(input.arguments, text);
    INFO(got.output);
    auto refused = syncnorm::compat::caf_line != 0 && *expected != '\0';
    CHECK(got.code == (refused ? 1 : 0));
    CHECK(got.says(text.substr(0, at) + ": expected " + expected + ", found "
                   + text.substr(at + 1))
          == refused);
  }
}

TEST_CASE("no file that is written may be another one of the same run, by "
          "whatever name, and all of them stay as they were") {
  csv_file input{"1,2\n3,4\n"};
  scratch_file link{"link"}, fresh{"fresh"};
  std::filesystem::create_hard_link(input.name, link.name);
  auto other_path = "/tmp/../tmp/" + input.name.substr(5);
  for (const auto& name : {input.name, link.name, other_path}) {
    auto expected =
        ": expected another file than --input, got \"" + name + "\"";
    check_refused(input.arguments + "--output=" + name, "--output" + expected);
    check_refused(input.arguments + "--state=" + name, "--state" + expected);
    check_refused("--input=- --output=" + name + " < " + input.name,
                  "--output" + expected);
  }
  check_refused(input.arguments + "--output=" + fresh.name + " --state=/tmp/./"
                    + fresh.name.substr(5),
                "--state: expected another file than --output, got");
  CHECK(content(input.name) == "1,2\n3,4\n");
  CHECK(!std::filesystem::exists(fresh.name));
}

TEST_CASE("no file that is written may be the configuration file, named or "
          "not, and it stays as it was") {
  csv_file input{"1,2\n3,4\n"};
  scratch_file folder{"folder"};
  std::filesystem::create_directory(folder.name);
  const std::string unnamed = syncnorm::detail::caf_line == 0
                                  ? "caf-application.ini"
                                  : "caf-application.conf";
  auto there = "cd " + folder.name + " &&";
  for (const auto& name : {std::string{"mine"}, unnamed}) {
    auto file = folder.name + "/" + name;
    std::ofstream{file} << "header = true\n";
    auto more = name == unnamed ? "" : " --config-file=./" + name;
    for (const std::string option : {"--output", "--state"}) {
      auto got = run(input.arguments + option + "=" + file + more, there);
      CHECK(got.code == 1);
      CHECK(got.says("pipeline: " + option
                     + ": expected another file than the configuration file, "
                       "got \""
                     + file + "\""));
    }
    CHECK(content(file) == "header = true\n");
    std::filesystem::remove(file);
  }
  std::filesystem::remove_all(folder.name);
}

TEST_CASE("no file that is written may be one that the program prints to, by "
          "whatever name") {
  csv_file input{"1,2\n3,4\n"};
  scratch_file printed{"printed"};
  auto refuses = [&](const std::string& arguments, const std::string& to,
                     const std::string& what) {
    auto got =
        run(input.arguments + arguments + " 2>&3 >" + to + "; } 3>&1", "{");
    CHECK(got.code == 1);
    CHECK(got.says("pipeline: " + what
                   + ": expected another file than the one this program "
                     "prints to, got \""));
    CHECK(content(to).empty());
  };
  for (const auto& name : {printed.name, std::string{"/dev/stdout"}}) {
    refuses("--output=" + name, printed.name, "--output");
    refuses("--state=" + name, printed.name, "--state");
  }
  // Errors are printed, too.
  auto errors = " 2>" + printed.name + "; }";
  CHECK(run(input.arguments + "--output=" + printed.name + errors, "{").code
        == 1);
  CHECK(content(printed.name)
            .starts_with("pipeline: --output: expected another file"));
}

TEST_CASE("a dash is no file to write: it would be one of that name") {
  csv_file input{"1,2\n3,4\n"};
  for (const std::string option : {"--output", "--state"})
    check_refused(input.arguments + option + "=-",
                  "pipeline: " + option
                      + ": expected a file, got \"-\"; ./- is one of that "
                        "name");
  CHECK(!std::filesystem::exists("-"));
}

TEST_CASE("files that keep nothing may be given twice") {
  csv_file input{"1,2\n3,4\n"};
  CHECK(
      run("--input=/dev/stdin --output=/dev/stdout < " + input.name + " | cat")
          .says("2 scored"));
  check_refused("--input=/dev/null --output=/dev/null", "expected records");
}

TEST_CASE("a file that cannot be opened or written is named, with the cause, "
          "and what was not written is lost") {
  csv_file input{"1,2\n3,4\n5,7\n"};
  check_refused("--input=/nowhere/x.csv",
                "/nowhere/x.csv: cannot be opened: No such file or directory");
  check_refused("--input=/tmp", "/tmp: cannot be read: Is a directory");
  check_refused(input.arguments + "--output=/nowhere/o.csv",
                "/nowhere/o.csv: cannot be written: No such file or directory");
  check_refused(input.arguments + "--mode=evaluation --state=/nowhere/s",
                "/nowhere/s: cannot be opened: No such file or directory");
  check_refused(input.arguments + "--output=/dev/full",
                "/dev/full: the scores cannot be written: No space left on "
                "device");
  CHECK(run(input.arguments + "--output=/dev/full").says(" 0 scored, "));
  // It may have read all of them before it hears that it is to stop.
  auto got = run("--output=/dev/full --input=" + digits);
  auto read = got.output.substr(got.output.find("records: ") + 9);
  read.resize(read.find(' '));
  CHECK(got.says(read + " read, 0 scored, " + read + " lost"));
}

TEST_CASE("a file that grows past the limit of its size is named, with the "
          "cause, and what was not written is lost") {
  scratch_file scores{"scores"};
  auto got =
      run("--input=" + digits + " --output=" + scores.name, "ulimit -f 1;");
  CHECK(got.code == 1);
  CHECK(got.says(scores.name
                 + ": the scores cannot be written: File too "
                   "large"));
  CHECK(got.says("360 read, "));
  CHECK_FALSE(got.says(", 0 lost"));
}

TEST_CASE("whoever reads the scores and leaves is named, and the stream ends") {
  scratch_file records{"records"}, scores{"scores"};
  REQUIRE(::mkfifo(records.name.c_str(), 0600) == 0);
  REQUIRE(::mkfifo(scores.name.c_str(), 0600) == 0);
  std::thread reader{[&] {
    // Each waits for the program to open the other end.
    auto to = ::open(records.name.c_str(), O_WRONLY);
    auto write = [&](const std::string& line) {
      CHECK(::write(to, line.data(), line.size())
            == static_cast<ssize_t>(line.size()));
    };
    write("1,2\n");
    auto from = ::open(scores.name.c_str(), O_RDONLY);
    char byte = 0;
    CHECK(::read(from, &byte, 1) == 1);
    ::close(from);
    write("3,4\n");
    ::close(to);
  }};
  check_refused("--batch=1 --input=" + records.name
                    + " --output=" + scores.name,
                scores.name + ": the scores cannot be written: Broken pipe");
  reader.join();
}

TEST_CASE("output that is closed takes nothing: neither scores nor what is "
          "printed are written, and that is said") {
  csv_file input{"1,2\n3,4\n"};
  auto run_with = [&](const std::string& more) {
    return run(input.arguments + more + "; } 3>&1", "{");
  };
  auto closed = run_with("--output=/dev/stdout 2>&3 >&-");
  CHECK(closed.code == 1);
  CHECK(closed.says("/dev/stdout: the scores cannot be written: "));
  scratch_file bad{"bad"};
  std::ofstream{bad.name} << "1,2\n3\n";
  const std::string problem = "pipeline: standard output: cannot be written";
  for (const std::string to : {"/dev/full", "&-"}) {
    auto cause = to == "&-" ? ": it is closed" : ": No space left on device";
    for (const auto& what : {std::string{}, "--input=" + bad.name}) {
      auto got = run_with(what + " 2>&3 >" + to);
      CHECK(got.code == 1);
      CHECK(got.says(problem + cause));
    }
    auto help = run_with("--help 2>&3 >" + to);
    CHECK(help.code == 1);
    CHECK(help.says(problem));
  }
  CHECK(run_with("2>&- >&3").says("2 scored"));
}

TEST_CASE("- is standard input, also beside a file of that name") {
  csv_file input{"1,2\n3,4\n"};
  scratch_file folder{"folder"};
  std::filesystem::create_directory(folder.name);
  std::filesystem::copy_file(digits, folder.name + "/-");
  CHECK(run("--input=- < " + std::filesystem::absolute(input.name).string(),
            "cd " + folder.name + " &&")
            .says("2 read, 2 scored"));
  std::filesystem::remove_all(folder.name);
}

TEST_CASE("variables of the environment set no option") {
  csv_file input{"1,2\n3,4\n"};
  CHECK(run(input.arguments, "HEADER=true BATCH=many MODE=release STATE=state")
            .says("2 read, 2 scored"));
  CHECK(!std::filesystem::exists("state"));
}

TEST_CASE("standard input that is closed is empty") {
  check_refused("--input=- <&-",
                "standard input: expected records, found none");
}

TEST_CASE("a batch that no memory can hold is refused in words") {
  csv_file input{"1,2\n"};
  check_refused("--input=" + input.name + " --batch=1000000000000000",
                "--batch: no memory for 1000000000000000 records of 2 numbers");
  check_refused("--input=" + input.name + " --batch=9223372036854775807",
                "pipeline: --batch: ");
}

TEST_CASE("a state that could not be saved is refused before the first "
          "record") {
  csv_file input{"1,2\n3,4\n"};
  auto got = run(input.arguments + "--state=/nowhere/state");
  CHECK(got.code == 1);
  CHECK(got.says("/nowhere/state: cannot be written: No such file"));
  CHECK(!got.says("records: "));
}

TEST_CASE("a state that is no file is refused, and is what it was") {
  csv_file input{"1,2\n3,4\n"};
  scratch_file pipe{"pipe"};
  REQUIRE(::mkfifo(pipe.name.c_str(), 0600) == 0);
  for (const auto& name : {std::string{"/dev/null"}, pipe.name})
    for (const std::string mode : {"online", "evaluation"})
      check_refused(input.arguments + "--mode=" + mode + " --state=" + name,
                    name + ": expected a file, found something else");
  CHECK(std::filesystem::is_character_file("/dev/null"));
  CHECK(std::filesystem::is_fifo(pipe.name));
}

TEST_CASE("the state of a stream whose scores cannot all be written is not "
          "saved: the records would count twice") {
  csv_file input{"1,2\n3,4\n5,6\n"};
  scratch_file state{"state"};
  auto with = input.arguments + "--state=" + state.name + " --output=";
  check_refused(with + "/dev/full", "the scores cannot be written");
  CHECK(!std::filesystem::exists(state.name));
  CHECK(run(with + "/dev/null").code == 0);
  auto before = content(state.name);
  check_refused(with + "/dev/full", "the scores cannot be written");
  CHECK(content(state.name) == before);
}

TEST_CASE("a state that is a link to a file that is not there yet makes that "
          "file") {
  csv_file input{"1,2\n3,4\n"};
  scratch_file state{"state"}, link{"link"}, second{"second"};
  auto beside = std::filesystem::path{state.name}.filename();
  std::filesystem::create_symlink(beside, link.name);
  std::filesystem::create_symlink(link.name, second.name);
  CHECK(run(input.arguments + "--state=" + second.name).code == 0);
  CHECK(std::filesystem::is_symlink(link.name));
  CHECK(std::filesystem::is_symlink(second.name));
  CHECK(content(state.name).starts_with("syncnorm-state"));
  std::filesystem::remove(state.name);
  check_refused(input.arguments + "--state=" + second.name
                    + " --output=" + state.name,
                "--state: expected another file than --output");
}

TEST_CASE("a state that is a link to itself is refused") {
  csv_file input{"1,2\n3,4\n"};
  scratch_file link{"link"};
  std::filesystem::create_symlink(link.name, link.name);
  check_refused(input.arguments + "--state=" + link.name,
                link.name + ": cannot be opened: Too many levels");
  check_refused("--input=" + link.name + " --output=/tmp/scores",
                link.name + ": cannot be opened: Too many levels");
}

TEST_CASE("a state that is a link stays one") {
  csv_file input{"1,2\n3,4\n"};
  scratch_file state{"state"}, link{"link"};
  std::ofstream{state.name};
  std::filesystem::remove(state.name);
  CHECK(run(input.arguments + "--state=" + state.name).code == 0);
  auto first = content(state.name);
  std::filesystem::create_symlink(state.name, link.name);
  CHECK(run(input.arguments + "--state=" + link.name).code == 0);
  CHECK(std::filesystem::is_symlink(link.name));
  CHECK(content(state.name) != first);
}

TEST_CASE("what a configuration file has wrong is named with the file") {
  scratch_file file{"config"};
  auto refuses = [&](const std::string& text, const std::string& problem) {
    std::ofstream{file.name} << text;
    check_refused("--input=x.csv --config-file=" + file.name, problem);
  };
  refuses("bach = 2\n", "pipeline: " + file.name + ": bach: not an option");
  refuses("batch = \"many\"\n",
          file.name + ": batch: expected a whole number, found ");
  refuses("header = 3\n", file.name + ": header: expected true or false, ");
  refuses("syncnorm { deadline = 30 }\n",
          "syncnorm.deadline: expected a duration");
  refuses("header = true\nbatch 2\n",
          "pipeline: " + file.name + ": line 2, column ");
  refuses("mode = online\n", file.name + ": line 1, column ");
  refuses("mode = online\n", ": expected NAME = VALUE, where VALUE is true,");
  refuses("\n\n  batch 2\n", file.name + ": line 3, column ");
  refuses("\nbatch = 0.1x\n", file.name + ": line 2, at its end: expected ");
  const std::string comment = syncnorm::detail::caf_line == 0 ? ";" : "#";
  refuses("// no comment\n", ", or a comment behind " + comment + "\n");
  refuses(comment + " one\nbatch 2\n", file.name + ": line 2, column ");
  // What is cut off ends with its line.
  for (const std::string value : {"0.1x", "\"open", "", "1_000"})
    refuses("header = true\nbatch = " + value + "\nrepeat = 1\n",
            file.name + ": line 2, at its end: expected NAME = VALUE, ");
  check_refused("--config-file=/nowhere/c",
                "/nowhere/c: cannot be opened: No such file or directory");
  check_refused("--config-file=/tmp", "/tmp: cannot be read");
}

TEST_CASE(
    "a configuration file is refused for what is wrong in a group, and in "
    "one inside another") {
  scratch_file file{"config"};
  auto refuses = [&](const std::string& text, const std::string& problem) {
    std::ofstream{file.name} << text;
    check_refused("--input=x.csv --config-file=" + file.name,
                  "pipeline: " + file.name + ": " + problem);
  };
  auto in_caf = [](const std::string& text) {
    return syncnorm::detail::caf_line == 0 ? text : "caf { " + text + " }\n";
  };
  refuses(in_caf("scheduler { max-threads = \"many\" }\n"),
          std::string{syncnorm::detail::caf_line == 0 ? "" : "caf."}
              + "scheduler.max-threads: expected a whole number of 0 or more, "
                "found ");
  // CAF 0.17 takes the group that is called so by the other syntax alone.
  auto in_global = [](const std::string& text) {
    return syncnorm::detail::caf_line == 0 ? "[global]\n" + text
                                           : "global { " + text + " }\n";
  };
  refuses(in_global("bacth = \"x\"\n"), "bacth: not an option");
  refuses(in_global("batch = \"x\"\n"), "batch: expected a whole number");
  if (syncnorm::detail::caf_line == 0)
    for (const std::string text :
         {"global { batch = 3 }\n", "header = true\nglobal{\n}\n",
          "other { x = 1 } global { batch = 3 }\n"})
      refuses(text, "global: no group, expected what is in it outside of any");
  refuses("batch { size = 3 }\n", "batch: expected a whole number, found ");
  refuses("mode { online = true }\n", "mode: expected text in quotes, found ");
}

TEST_CASE("a name that stands twice in a configuration file is refused where "
          "CAF leaves the second one out, and only there") {
  csv_file input{"1,2\n3,4\n"};
  scratch_file file{"config"};
  auto run_with = [&](const std::string& text) {
    std::ofstream{file.name} << text;
    return run(input.arguments + "--config-file=" + file.name);
  };
  for (const std::string text :
       {"header = true ; header = true\nother = { x = 1, y = [{ x = 2 }] }\n"
        "more { x = \"x = 1 { \\\" x = \", y { x = 1 } }\n",
        "[global]\nheader = true\n[other]\nheader = 1\n[more]\nx=1\n[other]\n"
        "x = 2\n"}) {
    if (syncnorm::detail::caf_line != 0)
      break;
    CAPTURE(text);
    CHECK(run_with(text).says("1 read, 1 scored"));
  }
  for (const auto& [written, again] :
       {std::pair{"syncnorm { fan-in = 3 }\nsyncnorm { foo = 0s }\n",
                  "line 2: syncnorm"},
        {"header = true\n\nheader = true\n", "line 3: header"},
        {"other { x { y = 1\n} }\nother = { }\n", "line 3: other"},
        {"other {\nx = 1,\n y = 2,\n x = 3 }\n", "line 4: other.x"},
        {"[other]\nx = 1\nx = 2\n", "line 3: other.x"}}) {
    const std::string text = written;
    CAPTURE(text);
    auto got = run_with(text);
    if (syncnorm::detail::caf_line == 0)
      CHECK(got.says("pipeline: " + file.name + ": " + again
                     + ": expected once, found again"));
    else
      CHECK(!got.says("expected once"));
  }
}

TEST_CASE("a configuration file that is cut off is refused; one that lacks "
          "only the end of its last line is not") {
  scratch_file file{"config"};
  csv_file input{"1,2\n3,4\n"};
  auto arguments = input.arguments + "--config-file=" + file.name;
  for (const std::string text :
       {"batch", "batch =", "batch = ", "state = \"x", "other {",
        "other { x = 1", "other { x = 1\n", "other { x = [1, 2",
        "other { y = { a = 1 }", "other { inner { x = 1 }\n"}) {
    CAPTURE(text);
    std::ofstream{file.name} << text;
    check_refused(arguments, "pipeline: " + file.name + ": ");
  }
  std::ofstream{file.name} << "other { global { x = [1, 2] } }\n"
                              "inner { global { } }\n"
                              "header = true";
  CHECK(run(arguments).says("1 read, 1 scored"));
}

TEST_CASE("what stands in a group of somebody else's is left alone") {
  csv_file input{"1,2\n3,4\n"};
  scratch_file file{"config"};
  std::ofstream{file.name} << "header = true\n"
                           << "other { batch = \"x\"\n inner { y = 1 } }\n";
  CHECK(run(input.arguments + "--config-file=" + file.name)
            .says("1 read, 1 scored"));
}

TEST_CASE("a configuration file may be a pipe, and is checked like any other") {
  csv_file input{"1,2\n3,4\n"};
  scratch_file pipe{"config"};
  REQUIRE(::mkfifo(pipe.name.c_str(), 0600) == 0);
  auto run_with = [&](const std::string& text) {
    std::thread writer{[&] { std::ofstream{pipe.name} << text; }};
    auto result = run(input.arguments + "--config-file=" + pipe.name);
    writer.join();
    return result;
  };
  CHECK(run_with("header = true\n").says("1 read, 1 scored"));
  auto refused = run_with("bacth = 3\n");
  CHECK(refused.code == 1);
  CHECK(refused.says("pipeline: " + pipe.name + ": bacth: not an option"));
}

TEST_CASE("a configuration file that nobody names is CAF's, in the working "
          "folder, and checked like any other") {
  csv_file input{"1,2\n3,4\n"};
  const std::string name = syncnorm::detail::caf_line == 0
                               ? "caf-application.ini"
                               : "caf-application.conf";
  scratch_file folder{"folder"};
  std::filesystem::create_directory(folder.name);
  auto file = folder.name + "/" + name;
  auto there = "cd " + folder.name + " &&";
  auto run_there = [&](const std::string& text) {
    std::ofstream{file} << text;
    return run(input.arguments, there);
  };
  CHECK(run_there("header = true\n").says("1 read, 1 scored"));
  CHECK(run_there("").says("2 read, 2 scored"));
  CHECK(run_there("bacth = 3\n").says(name + ": bacth: not an option"));
  std::filesystem::remove(file);
  CHECK(run(input.arguments, there).says("2 read, 2 scored"));
  if (syncnorm::detail::caf_line == 0)
    return;
  std::ofstream{file} << "bacth = 3\n";
  CHECK(run(input.arguments, "CONFIG_FILE=" + file)
            .says(": bacth: not an option"));
  std::filesystem::remove(file);
}

TEST_CASE("an option that cannot be read is named, with what it takes") {
  // Why it cannot be read has other words in each line of CAF.
  auto refuses = [](const std::string& argument, const std::string& expected) {
    auto with = "--input=x.csv " + argument;
    check_refused(with, "pipeline: " + argument + ": ");
    check_refused(with, expected + "; --help lists the options");
    CHECK(!run(with).says("("));
  };
  refuses("--batch=x", ", expected a whole number");
  refuses("--batch=1.5", ", expected a whole number");
  refuses("--batch=", ": missing argument, expected a whole number");
  refuses("--batch",
          ": missing argument, expected --batch=VALUE, a whole number");
  refuses("--config-file", ": missing argument, expected --config-file=VALUE");
  for (const std::string option : {"--batch", "--in-flight", "--repeat"}) {
    for (const auto* value : {"=x", "=9223372036854775808"})
      refuses(option + value, ", expected a whole number");
    check_refused("--input=x.csv " + option + "=-1",
                  "pipeline: " + option + ": expected 1 or more, got -1");
  }
  refuses("--header=3", ", expected --header without a value");
  for (const auto* unknown : {"--nope", "-x", "--nope=a=b"})
    refuses(unknown, ": not an option");
  check_refused("--input=x.csv --batch=-3", "--batch: expected 1 or more, got "
                                            "-3");
  check_refused("--input=x.csv --in-flight=0",
                "pipeline: --in-flight: expected 1 or more, got 0");
  for (const std::string word : {"cpu*4", "cpu:x", ""})
    check_refused(
        "--input=x.csv '--devices=cpu," + word + ",cpu'",
        "pipeline: --devices: expected cpu, cpu:N or cuda:N, with commas "
        "between them, got \""
            + word + "\"");
}

TEST_CASE("an argument of any length and with any characters is refused in a "
          "line of bounded length") {
  std::string much(40'000, 'x');
  for (const auto& argument :
       {"--batch=" + much, "--" + much, much, "-" + much}) {
    auto got = run("--input=x.csv " + argument);
    CHECK(got.code == 1);
    CHECK(got.says("pipeline: "));
    CHECK(got.says("xxx..."));
    CHECK(got.says("; --help lists the options"));
    CHECK(got.output.size() < 400);
  }
  check_refused("--input=x.csv --batch='a\nb'", ", expected a whole number");
  check_refused("--input=x.csv '--ba\"tch=a\"b'", ": not an option");
}

TEST_CASE("a heading is left out, and images are read as often as asked") {
  csv_file input{"a,b\n1,2\n3,4\n"};
  CHECK(run(input.arguments + "--header").says("2 read, 2 scored"));
  CHECK(run("--input=" + digits + " --repeat=2 --in-flight=3")
            .says("720 read, 720 scored"));
}
