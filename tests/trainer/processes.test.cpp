// Runs of several processes on this machine.

#include "trainer/run_processes.hpp"
#include "trainer/stranger.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>

using namespace syncnorm::train;

TEST_CASE("two processes with two replicas, and four with one, follow one with "
          "four bit for bit over 200 steps, and one replica to 1e-9") {
  auto options = small + arguments{"--precision=f64", "--epochs=9"};
  auto whole = run(1, "cpu*4", options);
  CHECK(is_same(run(2, "cpu*2", options), whole));
  CHECK(is_same(run(4, "cpu", options), whole));
  auto alone = run(1, "cpu", options);
  REQUIRE(whole.losses.size() >= 200);
  REQUIRE(alone.losses.size() == whole.losses.size());
  // Other sums, float64; the losses fall by a factor of a hundred.
  for (std::size_t i = 0; i < whole.losses.size(); ++i)
    REQUIRE(std::abs(whole.losses[i] - alone.losses[i])
            <= 1e-9 * alone.losses[i]);
}

TEST_CASE(
    "gradients in chunks, more than are on their way at a time, change no "
    "bit between two processes") {
  auto options = small + arguments{"--epochs=1"};
  const arguments chunks{"--chunk=1"};
  auto whole = run(1, "cpu*4", options);
  CHECK(is_same(run(2, "cpu*2", options + chunks), whole));
}

namespace {

/// What a launcher would start.
child launched(int rank, std::uint16_t port, const arguments& options) {
  return std::make_unique<child_process>(
      arguments{"/usr/bin/env", "WORLD_SIZE=3", fmt::format("RANK={}", rank),
                "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port),
                SYNCNORM_TRAIN}
      + options);
}

} // namespace

TEST_CASE(
    "one command line started several times by a launcher is one run, and "
    "a rank that comes twice is refused by name") {
  auto options = small + arguments{"--epochs=20"};
  auto port = stranger{0}.port();
  auto two = launched(2, port, options);
  auto first = launched(0, port, options);
  REQUIRE(two->wait_for("joined"));
  auto again = launched(2, port, options);
  require_failure(*again, "rank 2 has joined already: ");
  auto one = launched(1, port, options);
  REQUIRE(
      contains(first->line_that_begins("mlp"), "3 replicas in 3 processes"));
  for (auto* process : {&first, &one, &two})
    require_good_end(**process);
}

TEST_CASE("whoever is killed, whenever: all others end, and the run that is "
          "resumed reaches the same weights") {
  auto options = small
                 + arguments{"--devices=cpu", "--epochs=6", "--every=5",
                             "--precision=f64"};
  auto expected = run(2, "cpu", options).checkpoint;
  const auto* given = std::getenv("SYNCNORM_TEST_KILLS");
  auto kills = given != nullptr ? std::atoi(given) : 20;
  std::mt19937 random{static_cast<unsigned>(kills)};
  for (int i = 0; i < kills; ++i) {
    scratch_folder folder;
    const arguments hurry{"--patience=2"};
    auto first = serve(options + hurry + traced(folder), 1);
    auto other = join(first.where, options + hurry);
    auto delay = std::uniform_int_distribution{0, 400}(random);
    auto& victim = random() % 2 == 0 ? first.process : other;
    CAPTURE(i);
    CAPTURE(delay);
    // One in four is killed while the processes come together.
    if (i % 4 != 0)
      (void) first.process->wait_for("mlp, ");
    // A random moment is what is tested.
    std::this_thread::sleep_for(std::chrono::milliseconds{delay});
    victim->signal(SIGKILL);
    auto status = first.process->finish();
    INFO(first.process->output());
    auto other_status = other->finish();
    INFO(other->output());
    CHECK((status == 0 || status == 1 || status == 128 + SIGKILL));
    CHECK((other_status == 0 || other_status == 1
           || other_status == 128 + SIGKILL));
    auto rest = options + traced(folder) + arguments{"--devices=cpu*2"};
    if (std::filesystem::exists(folder / "checkpoint.pt"))
      rest.push_back("--resume");
    require_good_end(*start(rest));
    REQUIRE(read_text(folder / "checkpoint.pt") == expected);
  }
}

namespace {

/// `run_several` of two processes of a program that knows no signals yet, in a
/// shell that first runs `commands`.
child start_unprepared(const scratch_folder& folder,
                       const std::string& commands = {}) {
  auto program = folder / "program";
  // A shell would note the signal and look after it too late, if it is about to
  // wait.
  std::ofstream{program} << "#!/usr/bin/perl\n"
                            "$| = 1;\n"
                            "print \"started\\n\" if $ENV{RANK} == 0;\n"
                            "sleep 20;\n"
                            "print STDERR \"$ENV{RANK} stayed\\n\";\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  // A shell cannot trap what is ignored when it starts.
  return std::make_unique<child_process>(
      arguments{"/usr/bin/env", "--default-signal", "bash", "-euo", "pipefail",
                "-c", commands + ". \"$0\"; run_several 2 \"$@\"",
                SYNCNORM_SCRIPTS "/processes.sh", program});
}

} // namespace

TEST_CASE("scripts/train.sh: Ctrl-C ends all processes of a machine, also "
          "before the program waits for it") {
  for (auto number : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(number);
    scratch_folder folder;
    auto script = start_unprepared(folder);
    REQUIRE(script->wait_for("started"));
    CHECK(script->kill(number) == 128 + SIGTERM);
    CHECK_FALSE(contains(script->output(), "stayed"));
  }
}

TEST_CASE(
    "scripts/train.sh: its status is the first process's, also where that "
    "ends before the shell looks after it") {
  scratch_folder folder;
  // Looks until the process is gone.
  auto script = start_unprepared(folder, R"(kill() {
    builtin kill "$@" 2>/dev/null || return
    while [[ $1 == -0 ]] && builtin kill -0 "$2" 2>/dev/null; do :; done
    [[ $1 != -0 ]]
  }
  )");
  REQUIRE(script->wait_for("started"));
  CHECK(script->kill(SIGINT) == 128 + SIGTERM);
}
