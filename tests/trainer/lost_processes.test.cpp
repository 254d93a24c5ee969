// Runs of several processes of which some are killed, stopped or leave.

#include "trainer/exact_losses.hpp"
#include "trainer/run_processes.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <memory>
#include <string>

using namespace syncnorm::train;

TEST_CASE(
    "a worker that is killed, stopped or leaves ends the run for all, who "
    "learn its name, with a checkpoint of the last whole step") {
  for (auto number : {SIGKILL, SIGSTOP, SIGINT}) {
    CAPTURE(number);
    scratch_folder folder;
    running_trio trio{endless
                      + arguments{"--checkpoint=" + folder.path().string()}};
    trio.goes->signal(number);
    require_failure(*trio.first.process, trio.name);
    CHECK(contains(trio.first.process->output(), "; stopped after step "));
    require_failure(*trio.stays, trio.name);
    trio.goes->signal(SIGCONT);
    CHECK(trio.goes->finish()
          == (number == SIGKILL  ? 128 + SIGKILL
              : number == SIGINT ? 0
                                 : 1));
    auto again = start(small
                       + arguments{"--epochs=9999", "--resume",
                                   "--checkpoint=" + folder.path().string()});
    REQUIRE(again->wait_for("epoch"));
    CHECK(again->kill(SIGINT) == 0);
  }
}

TEST_CASE("workers of a server that is killed or stopped say so, and end") {
  for (auto number : {SIGKILL, SIGSTOP}) {
    running_trio trio{endless};
    trio.first.process->signal(number);
    require_failure(*trio.stays, "the serving process is gone");
    require_failure(*trio.goes, "the serving process is gone");
    trio.first.process->kill(SIGKILL);
  }
}

TEST_CASE("with --on-failure=continue a run goes on without a lost process, "
          "exactly, and takes a new one in") {
  scratch_folder folder;
  auto first = serve(endless_run + traced(folder), 2);
  auto one = join(first.where, endless_run);
  auto two = join(first.where, endless_run);
  REQUIRE(first.process->wait_for("epoch"));
  one->kill(SIGKILL);
  REQUIRE(first.process->wait_for("after step"));
  auto three = join(first.where, endless_run);
  REQUIRE(
      contains(first.process->line_that_begins("after step"), "has joined"));
  two->signal(SIGINT);
  CHECK(two->finish() == 0);
  CHECK(contains(two->output(), "left the run"));
  REQUIRE(contains(first.process->line_that_begins("after step"), "has left"));
  REQUIRE(first.process->wait_for("epoch"));
  CHECK(first.process->kill(SIGINT) == 0);
  require_good_end(*three);
  require_losses_of_one(folder);
}

TEST_CASE("a worker that is started anew under the number of the one that was "
          "lost, as in a container, takes part again") {
  const std::string own_numbers =
      "c='unshare -Urpf --mount-proc --kill-child'; "
      "$c true 2>/dev/null || exit 77; exec $c \"$0\" \"$@\"";
  auto join_as_first = [&](const std::string& where) {
    return std::make_unique<child_process>(
        arguments{"/bin/sh", "-c", own_numbers, SYNCNORM_TRAIN,
                  "--join=" + where}
        + endless_run);
  };
  auto first = serve(endless_run, 1);
  auto one = join_as_first(first.where);
  if (!one->wait_for("joined")) {
    CHECK(one->finish() == 77);
    MESSAGE("skipped: this machine makes no namespaces for us");
    return;
  }
  REQUIRE(first.process->wait_for("epoch"));
  one->kill(SIGKILL);
  REQUIRE(contains(first.process->line_that_begins("after step"), "is gone"));
  auto two = join_as_first(first.where);
  REQUIRE(
      contains(first.process->line_that_begins("after step"), "has joined"));
  auto next = first.process->line_that_begins("epoch");
  CHECK(next.starts_with("epoch"));
  CHECK_FALSE(contains(first.process->output(), "does not answer"));
  CHECK(first.process->kill(SIGINT) == 0);
  require_good_end(*two);
}

TEST_CASE("a resumed run with --on-failure=continue goes on without a process "
          "that is lost before its first step") {
  scratch_folder folder;
  auto options =
      endless_run + arguments{"--checkpoint=" + folder.path().string()};
  auto before = start(options);
  REQUIRE(before->wait_for("epoch"));
  CHECK(before->kill(SIGINT) == 0);
  auto first = serve(options + arguments{"--resume"}, 2);
  auto one = join(first.where, endless_run);
  REQUIRE(!one->line_that_begins("joined ").empty());
  one->signal(SIGSTOP);
  auto two = join(first.where, endless_run);
  REQUIRE(
      contains(first.process->line_that_begins("after step"), "process 1 ("));
  REQUIRE(first.process->wait_for("epoch"));
  CHECK(first.process->kill(SIGINT) == 0);
  require_good_end(*two);
}

namespace {

/// Joins as soon as the place of a process that is lost is free again.
child join_freed_place(const std::string& where) {
  for (auto i = 0; i < 20; ++i)
    if (auto one = join(where, endless_run); one->wait_for("joined"))
      return one;
  FAIL("no place is free");
  return nullptr;
}

/// Reads on until the process that serves has taken one in.
bool takes_in_one(child_process& server) {
  for (auto i = 0; i < 50; ++i)
    if (contains(server.line_that_begins("after step"), "has joined"))
      return true;
  return false;
}

} // namespace

TEST_CASE("a process that joins a run and leaves or is killed at once, about "
          "when it would take its first step, disturbs nobody") {
  scratch_folder folder;
  running_trio trio{endless_run + traced(folder)};
  auto& server = *trio.first.process;
  auto& goes = trio.goes;
  goes->kill(SIGKILL);
  auto join_and_end = [&](int number, bool is_taken_in) {
    goes = join_freed_place(trio.first.where);
    if (is_taken_in)
      REQUIRE(takes_in_one(server));
    auto status = goes->kill(number);
    INFO(goes->output());
    CHECK(status == (number == SIGINT ? 0 : 128 + SIGKILL));
  };
  for (auto is_taken_in : {true, false})
    for (auto number : {SIGKILL, SIGINT, SIGKILL, SIGKILL})
      join_and_end(number, is_taken_in);
  REQUIRE(server.wait_for("epoch"));
  CHECK(server.kill(SIGINT) == 0);
  INFO(server.output());
  require_good_end(*trio.stays);
  require_losses_of_one(folder);
}
