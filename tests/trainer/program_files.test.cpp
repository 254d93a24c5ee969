// What a run reads and writes.

#include "trainer/output/metrics_file.hpp"

#include "trainer/other_digits.hpp"
#include "trainer/run_program.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

using namespace syncnorm::train;

namespace {

/// What both tests of a full disk run: a checkpoint a step, then its accuracy.
const std::string save_until_full =
    "\"$0\" --devices=cpu --model=mlp --epochs=2 --every=1 "
    "--checkpoint=\"$1\"; status=$?; "
    "\"$0\" --eval=\"$1\"/checkpoint.pt || exit 99; exit $status";

/// The one line of a run that ended because a file of metrics, of that name and
/// for that reason, took no more.
std::string line_of_unwritten_metrics(const outcome& result,
                                      const std::string& name,
                                      const std::string& why) {
  CAPTURE(result.output);
  CHECK(result.status == 1);
  auto line = line_after(result.output, "syncnorm-train: ");
  CHECK(contains(line, name + ": cannot be written: " + why + "; "));
  CHECK(contains(line, "; go on with --resume from "));
  return line;
}

} // namespace

TEST_CASE(
    "a disk that is full at checkpoint time ends the run in one line, and "
    "the last checkpoint stays good") {
  scratch_folder folder;
  // 200 KiB: one checkpoint of some 150 KiB, and not a second beside it.
  auto result =
      run_script("unshare -rm true 2>/dev/null || exit 77; "
                 "exec unshare -rm /bin/sh -c '"
                 "mount -t tmpfs -o size=200k none \"$1\" || exit 77; "
                     + save_until_full + "' \"$0\" \"$1\"",
                 folder);
  CAPTURE(result.output);
  if (result.status == 77) {
    MESSAGE("skipped: this machine lets nobody mount a tmpfs");
    return;
  }
  CHECK(result.status == 1);
  CHECK(contains(line_after(result.output, "syncnorm-train: "),
                 "checkpoint.pt: cannot be written: No space left on device"));
  CHECK(contains(result.output, "held-out accuracy"));
}

TEST_CASE("a checkpoint greater than files may be is one line, not a signal") {
  scratch_folder folder;
  auto result =
      run_script("ulimit -f 64; exec \"$0\" --devices=cpu --model=mlp "
                 "--checkpoint=\"$1\"",
                 folder);
  CAPTURE(result.output);
  CHECK(result.status == 1);
  CHECK(contains(line_after(result.output, "syncnorm-train: "),
                 "checkpoint.pt: cannot be written: File too large"));
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("metrics greater than files may be end the run with a checkpoint of "
          "its last step, and the rows that are lost are named, also by the "
          "run that goes on") {
  scratch_folder folder;
  // 200 KiB: more than a checkpoint has, and than the metrics of four epochs.
  auto result = run_script("ulimit -f 400; exec \"$0\" --devices=cpu "
                           "--model=mlp --batch=2 --epochs=9999 "
                           "--checkpoint=\"$1\" --metrics=\"$1\"/m.csv",
                           folder);
  auto line = line_of_unwritten_metrics(result, "m.csv", "File too large");
  CAPTURE(line);
  auto rows = read_metrics(folder / "m.csv");
  REQUIRE_FALSE(rows.empty());
  auto last = rows.back();
  CHECK((contains(line, fmt::format("from step {} on are lost; stopped",
                                    last.step + 1))
         || contains(line, fmt::format("from epoch {} on are lost; stopped",
                                       last.epoch))));
  auto stopped = step_after(line, "stopped after step ");
  REQUIRE(stopped >= static_cast<int>(rows.back().step));
  child_process again{
      command({"--devices=cpu", "--model=mlp", "--batch=2", "--epochs=9999",
               "--resume", "--checkpoint=" + folder.path().string(),
               "--metrics=" + (folder / "m.csv").string()})};
  REQUIRE(again.wait_for("resumed after step " + std::to_string(stopped)));
  CHECK(
      contains(again.output(),
               "syncnorm-train: " + (folder / "m.csv").string() + ": the row"));
  CHECK(again.kill(SIGINT) == 0);
}

TEST_CASE(
    "a reader of the metrics who leaves ends the run with a checkpoint of "
    "its last step") {
  scratch_folder folder;
  auto result = run_script("mkfifo \"$1\"/m; head -n 1 \"$1\"/m >/dev/null & "
                           "exec \"$0\" --devices=cpu --model=mlp "
                           "--epochs=9999 --checkpoint=\"$1\" "
                           "--metrics=\"$1\"/m",
                           folder);
  line_of_unwritten_metrics(result, "m", "Broken pipe");
}

TEST_CASE("a run goes on to its end whose output nobody reads any more") {
  scratch_folder folder;
  // A pipe without a reader, and with one while it is opened.
  auto result = run_script("mkfifo \"$1\"/out; exec 3<>\"$1\"/out; "
                           "exec 4>\"$1\"/out 3>&-; "
                           "exec \"$0\" --devices=cpu --model=mlp --epochs=2 "
                           "--metrics=\"$1\"/m.csv >&4",
                           folder);
  CHECK(result.status == 1);
  CHECK(result.output
        == "syncnorm-train: standard output: cannot be written\n");
  auto rows = read_metrics(folder / "m.csv");
  REQUIRE_FALSE(rows.empty());
  CHECK(rows.back().epoch == 2);
}

TEST_CASE("what is printed and lost is an error") {
  scratch_folder folder;
  REQUIRE(train({"--devices=cpu", "--model=mlp", "--epochs=1",
                 "--checkpoint=" + folder.path().string()})
              .status
          == 0);
  for (const auto* options : {"--eval=\"$1\"/checkpoint.pt", "--help",
                              "--devices=cpu --model=mlp --epochs=1"}) {
    CAPTURE(options);
    auto result = run_script(
        std::string{"exec \"$0\" "} + options + " > /dev/full", folder);
    CHECK(result.status == 1);
    CHECK(result.output
          == "syncnorm-train: standard output: cannot be written\n");
  }
}

TEST_CASE(
    "a run whose warnings and errors nobody can be told goes on, and ends "
    "with its own exit status") {
  const std::string run = "\"$0\" --devices=cpu --model=mlp "
                          "--checkpoint=\"$1\" --metrics=\"$1\"/m.csv ";
  const std::vector<std::pair<std::string, int>> cases{
      {"2>&-", 0}, {"2>/dev/full", 0}, {"<&- >&- 2>&-", 1}};
  for (const auto& [where, status] : cases) {
    CAPTURE(where);
    scratch_folder folder;
    CHECK(run_script("exec \"$0\" --epochs=0 " + where, folder).status == 1);
    REQUIRE(run_script(run + "--epochs=1", folder).status == 0);
    // It would be told which rows are missing.
    CHECK(run_script("head -n 5 \"$1\"/m.csv > \"$1\"/n.csv; "
                     "mv \"$1\"/n.csv \"$1\"/m.csv; exec "
                         + run + "--epochs=2 --resume " + where,
                     folder)
              .status
          == status);
    auto rows = read_metrics(folder / "m.csv");
    REQUIRE_FALSE(rows.empty());
    CHECK(rows.back().epoch == 2);
  }
}

TEST_CASE("a checkpoint that is a pipe nobody writes to is refused, not waited "
          "for") {
  scratch_folder folder;
  auto result = run_script("mkfifo \"$1\"/checkpoint.pt; "
                           "exec \"$0\" --resume --checkpoint=\"$1\"",
                           folder);
  CHECK(result.status == 1);
  CHECK(contains(result.output, "checkpoint.pt: expected a whole"));
}

TEST_CASE("what stands where a checkpoint is written before it is renamed is "
          "refused before the first step") {
  scratch_folder folder;
  auto result =
      run_script("mkdir \"$1\"/checkpoint.pt.tmp; "
                 "exec \"$0\" --devices=cpu --model=mlp --checkpoint=\"$1\"",
                 folder);
  CHECK(result.status == 1);
  CHECK(contains(result.output, "checkpoint.pt.tmp: expected a file or none, "
                                "found a folder"));
  CHECK_FALSE(contains(result.output, "training and"));
}

TEST_CASE("a checkpoint that is a link stays one, and its target is written") {
  scratch_folder folder;
  auto result =
      run_script("mkdir \"$1\"/run; ln -s ../real.pt \"$1\"/run/checkpoint.pt; "
                 "exec \"$0\" --devices=cpu --model=mlp --epochs=1 "
                 "--checkpoint=\"$1\"/run",
                 folder);
  CHECK(result.status == 0);
  CHECK(std::filesystem::is_symlink(folder / "run/checkpoint.pt"));
  CHECK(std::filesystem::is_regular_file(folder / "real.pt"));
}

TEST_CASE("a checkpoint is evaluated from a pipe, too") {
  scratch_folder folder;
  auto result =
      run_script("\"$0\" --devices=cpu --model=mlp --epochs=1 "
                 "--checkpoint=\"$1\" && "
                 "cat \"$1\"/checkpoint.pt | \"$0\" --eval=/dev/stdin",
                 folder);
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK(contains(result.output, "held-out accuracy"));
}

TEST_CASE("a device without an end is no checkpoint and no data") {
  scratch_folder folder;
  for (const std::string option : {"--eval=/dev/zero", "--data=\"$1\""}) {
    auto result = run_script("for name in images-idx3 labels-idx1; do "
                             "ln -sf /dev/zero \"$1\"/train-$name-ubyte; done; "
                             "exec \"$0\" --model=mlp "
                                 + option,
                             folder);
    CHECK(result.status == 1);
    CHECK(contains(result.output, ": expected a file, found a device"));
  }
}

TEST_CASE("files that cannot be looked at are named, in the system's words") {
  scratch_folder folder;
  auto result = run_script("ln -s loop \"$1\"/loop; exec \"$0\" --model=mlp "
                           "--metrics=\"$1\"/loop",
                           folder);
  CHECK(result.status == 1);
  CHECK(contains(result.output, "loop: Too many levels of symbolic links"));
  CHECK_FALSE(contains(result.output, "filesystem error"));
}

TEST_CASE("a folder that may not be written to is refused before the first "
          "step") {
  scratch_folder folder;
  auto closed = folder / "closed";
  std::filesystem::create_directory(closed);
  std::filesystem::permissions(closed, std::filesystem::perms::owner_read);
  if (::access(closed.c_str(), W_OK) == 0)
    // Whoever is root may write anywhere but here.
    refuses({"--checkpoint=/proc/closed"}, "/proc/closed: cannot be made: ");
  else
    refuses({"--checkpoint=" + closed.string()}, "closed: cannot be written");
}

TEST_CASE("a run that is refused removes the folder that it made, and no "
          "other") {
  scratch_folder folder;
  auto refuses_in = [&](const char* name) {
    refuses({"--devices=cuda:99", "--checkpoint=" + (folder / name).string()},
            "cuda:99 is not there");
    return std::filesystem::exists(folder / name);
  };
  std::filesystem::create_directory(folder / "there");
  CHECK(refuses_in("there"));
  CHECK_FALSE(refuses_in("made"));
}

TEST_CASE("a checkpoint of another model, or one that would be lost, is "
          "refused by name") {
  scratch_folder folder;
  auto checkpoint = "--checkpoint=" + folder.path().string();
  REQUIRE(
      train({"--devices=cpu", "--epochs=1", "--model=mlp", checkpoint}).status
      == 0);
  refuses({checkpoint}, "checkpoint.pt: there is a checkpoint already");
  refuses({checkpoint, "--resume"},
          "checkpoint.pt: of another run: expected model=cnn, found model=mlp");
  refuses({checkpoint, "--resume", "--model=mlp", "--seed=2"},
          "expected seed=2, found seed=1");
  make_other_digits(folder / "data");
  refuses({checkpoint, "--resume", "--model=mlp",
           "--data=" + (folder / "data").string()},
          "checkpoint.pt: of another run: expected data=");
}
