// What a run is told by its command line, a configuration file and launchers.

#include "trainer/run/this_machine.hpp"

#include "trainer/run_program.hpp"

#include "syncnorm/compat.hpp"
#include "syncnorm/detail/caf/line.hpp"

#include <doctest/doctest.h>

using namespace syncnorm::train;

TEST_CASE("an address that a launcher's variable gave is refused by its name") {
  scratch_folder folder;
  auto result = run_script("exec env WORLD_SIZE=2 RANK=0 MASTER_ADDR=10.0.0.1 "
                           "\"$0\"",
                           folder);
  CHECK(result.status == 1);
  CHECK(contains(result.output, "syncnorm-train: MASTER_ADDR: expected "
                                "a loopback address"));
}

TEST_CASE("an empty argument, or two dashes alone, hides none behind it") {
  scratch_folder folder;
  for (const std::string odd : {"''", "--"}) {
    auto result =
        run_script("exec \"$0\" --model=mlp " + odd + " --nosuch", folder);
    CHECK(result.status == 1);
    CHECK(contains(result.output, "syncnorm-train: unknown argument \""));
  }
}

TEST_CASE("a scheduler that has no thread, or no time, or never steals, and a "
          "network of which nothing is read, are refused") {
  scratch_folder folder;
  for (const std::string name :
       {"scheduler.max-threads", "scheduler.max-throughput",
        "work-stealing.aggressive-steal-interval",
        "work-stealing.moderate-steal-interval",
        "work-stealing.relaxed-steal-interval",
        "middleman.max-consecutive-reads"}) {
    auto option = (syncnorm::compat::caf_line == 0 ? "" : "caf.") + name;
    auto result = run_script(
        "exec \"$0\" --model=mlp --epochs=1 --" + option + "=0", folder);
    CHECK(result.status == 1);
    CHECK(contains(result.output, option + ": expected 1 or more, found 0"));
  }
}

TEST_CASE("without a device list there is a replica for each core that the "
          "process may use") {
  auto cores = usable_cores();
  REQUIRE_FALSE(cores.empty());
  scratch_folder folder;
  auto result = run_script("exec taskset -c " + std::to_string(cores.front())
                               + " \"$0\" --model=mlp --epochs=1",
                           folder);
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK(contains(result.output, "norm on cpu:0: "));
}

TEST_CASE("--help lists the options, and a configuration file sets them") {
  auto help = train({"--help"});
  CHECK(help.status == 0);
  for (const auto* option : {"--devices", "--norm", "--resume", "--eval"})
    CHECK(contains(help.output, option));
  scratch_folder folder;
  const std::string text = "model = \"mlp\"\nepochs = 1\ndevices = \"cpu*3\"\n";
  write_bytes(folder / "run.conf", {text.begin(), text.end()});
  auto result = train({"--config-file=" + (folder / "run.conf").string()});
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK(
      contains(result.output, "mlp, f32, sync norm on cpu:0, cpu:1, cpu:2: "));
  CHECK(contains(result.output, "\nepoch 1/1 "));
}

TEST_CASE("what a configuration file has wrong is named with the file") {
  scratch_folder folder;
  auto file = (folder / "run.conf").string();
  auto refuses_file = [&](const std::string& text, const std::string& problem) {
    write_bytes(folder / "run.conf", {text.begin(), text.end()});
    refuses({"--config-file=" + file}, problem);
  };
  refuses_file("epoch = 2\n", file + ": epoch: not an option");
  refuses_file("config-file = \"other\"\n",
               file
                   + ": config-file: expected on the command line, not in a "
                     "file");
  // CAF 1.x takes such a number.
  if (syncnorm::detail::caf_line == 0)
    refuses_file("lr = 1\n", file
                                 + ": lr: expected a number with a point, "
                                   "such as 1.0, found 1");
  refuses_file("lr = \"high\"\n", file + ": lr: expected a number with ");
  refuses_file("batch = \"many\"\n",
               file + ": batch: expected a whole number, found ");
  refuses_file("syncnorm { max-message = 30 }\n",
               "syncnorm.max-message: expected an integer of 65536 or more");
  refuses_file("syncnorm { deadline = 30s }\n",
               "syncnorm.deadline: not an option of the trainer, expected "
               "--deadline");
  refuses_file("syncnorm { failure-policy = \"fail-round\" }\n",
               "syncnorm.failure-policy: not an option of the trainer, "
               "expected --on-failure");
  refuses_file("syncnorm { fan-in = 8 }\n",
               "syncnorm.fan-in: not an option of the trainer, expected "
               "--fan-in");
  using namespace std::string_literals;
  refuses_file("lr = 0.1\n\0lrr = 3\n"s,
               file + ": line 2: expected text, found a NUL byte");
  if (syncnorm::detail::caf_line == 0)
    refuses_file("global { epochs = 2 }\n",
                 file
                     + ": global: no group, expected what is in it outside "
                       "of any");
  else
    refuses_file("global { epoch = 2 }\n", file + ": epoch: not an option");
  refuses_file("epochs = 1\nlr", file + ": ");
  refuses_file("caf { x = 1\n", file + ": expected }, found the end");
  refuses_file("caf { x = [1,\n", file + ": expected ], found the end");
  refuses_file("batch { size = 3 }\n",
               file + ": batch: expected a whole number, found ");
  refuses_file("batch = -5\n", "--batch: expected 1 or more, found -5");
}

TEST_CASE("what cannot be done is refused in one line") {
  scratch_folder folder;
  write_bytes(folder / "file", {1, 2, 3});
  refuses({"--nonsense=1"}, "train: --nonsense=1: not an option; --help ");
  // CAF 1.x does not say why it cannot read a value, and takes one that is an
  // argument of its own.
  constexpr auto is_legacy = syncnorm::compat::caf_line == 0;
  const std::string why =
      is_legacy ? "unexpected character" : "invalid argument";
  refuses({"--lr=fast"},
          "train: --lr=fast: " + why + ", expected a number; --help ");
  refuses({"--epochs=x"}, why + ", expected a whole number; --help ");
  for (const std::string name : {"batch", "epochs", "chunk"})
    refuses({"--" + name + "=-1"}, "--" + name
                                       + ": expected 1 or more, found "
                                         "-1");
  for (const std::string name : {"seed", "shift", "every", "workers"})
    refuses({"--" + name + "=9223372036854775808"}, "expected a whole number");
  if (is_legacy)
    refuses({"--epochs", "1"}, "train: --epochs: missing argument, expected "
                               "--epochs=VALUE, a whole number; --help ");
  refuses({"--lr=1e400"}, "--lr: expected a finite number, 0 or more");
  refuses({"--shift=16385"}, "--shift: expected 0 to 16384 pixels");
  refuses({"--eval=x.pt", "--join=127.0.0.1:1"},
          "--eval, --join: expected one of them, found both");
  refuses({"nonsense"}, "unknown argument \"nonsense\"");
  refuses({"--model=vgg"}, "--model: expected mlp, cnn, resnet");
  refuses({"--devices=tpu"}, "--devices: expected cpu");
  refuses({"--devices=cuda:99"}, "cuda:99 is not there");
  refuses({"--devices=cpu*4", "--batch=3"}, "--batch: expected 4 or more");
  refuses({"--data=" + folder.path().string()}, "found neither");
  refuses({"--eval=" + (folder / "file").string()}, "file: expected a whole");
  refuses({"--resume", "--checkpoint=" + folder.path().string()},
          "checkpoint.pt, found none");
  refuses({"--checkpoint=" + (folder / "file").string()}, "file: cannot be");
  refuses({"--metrics=/dev/full", "--epochs=1"},
          "/dev/full: cannot be written");
}
