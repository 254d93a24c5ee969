// Who leaves a run of several processes before it trains, or by Ctrl-C.

#include "trainer/run_processes.hpp"
#include "trainer/stranger.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <csignal>
#include <string>

using namespace syncnorm::train;

TEST_CASE("a worker that leaves before the run has begun is answered at once, "
          "and its place is free") {
  auto options = small + arguments{"--epochs=1", "--devices=cpu"};
  auto first = serve(options, 2);
  auto goes = join(first.where, options);
  REQUIRE(goes->wait_for("joined"));
  goes->signal(SIGTERM);
  require_good_end(*goes);
  CHECK(contains(goes->output(), "left the run"));
  auto one = join(first.where, options);
  auto two = join(first.where, options);
  for (auto* process : {&first.process, &one, &two})
    require_good_end(**process);
}

TEST_CASE("a worker that has joined learns why the run ends before the others "
          "have come") {
  const arguments options{"--model=mlp", "--devices=cpu"};
  auto first = serve(options, 2);
  auto other = join(first.where, options);
  REQUIRE(other->wait_for("joined"));
  first.process->signal(SIGINT);
  const std::string why = "1 of 2 processes are there; stopped";
  require_failure(*first.process, "--serve: " + why);
  require_failure(*other, why);
  // Not its own option.
  CHECK_FALSE(contains(other->output(), "--serve"));
}

TEST_CASE("a worker that is gone before the others have come is named, at once "
          "by the process that serves and in the end to all") {
  const arguments options{"--model=mlp", "--devices=cpu"};
  auto first = serve(options, 3);
  auto other = join(first.where, options);
  REQUIRE(other->wait_for("joined"));
  auto dies = join(first.where, options);
  REQUIRE(dies->wait_for("joined"));
  auto gone = fmt::format(":{}, 1 replica) is gone", dies->id());
  dies->kill(SIGKILL);
  REQUIRE(contains(first.process->line_that_begins("process 2 ("), gone));
  first.process->signal(SIGINT);
  const std::string why = "1 of 3 processes are there; stopped; process 2 (";
  require_failure(*first.process, "--serve: " + why);
  require_failure(*other, why);
  for (auto* process : {&first.process, &other})
    CHECK(contains((*process)->output(), gone));
}

TEST_CASE("Ctrl-C ends a worker that waits for an answer") {
  stranger silent{0};
  auto process = join(fmt::format("127.0.0.1:{}", silent.port()),
                      small + arguments{"--devices=cpu"});
  silent.accept();
  process->signal(SIGINT);
  require_failure(*process, "stopped before it answered");
}

TEST_CASE(
    "one Ctrl-C of which a process is told twice, as below a launcher, ends "
    "it after the step under way; another one, later, at once") {
  auto program = start(endless);
  REQUIRE(program->wait_for("epoch"));
  program->signal(SIGINT);
  CHECK(program->kill(SIGTERM) == 0);
  CHECK(contains(program->output(), "stopped after step "));
  running_trio trio{endless + arguments{"--deadline=60"}};
  trio.goes->signal(SIGSTOP);
  // The step does not end: only another request ends the process.
  while (!trio.first.process->has_ended())
    trio.first.process->signal(SIGINT);
  CHECK(trio.first.process->finish() == 128 + SIGINT);
}
