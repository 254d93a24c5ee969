#include "tests/actors/collective.hpp"
#include "tests/actors/relay_tree.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

// The policy that goes on with the survivors.

namespace {

using adder = collective<double, double>;

/// A deadline of one hour tells a round that goes on at once from one that goes
/// on at its deadline.
sync_options bn2(caf::timespan deadline = 1h) {
  return {.layer = "bn2",
          .deadline = deadline,
          .policy = failure_policy::continue_with_survivors};
}

/// A tag of slave `i` for a round that is not the one that runs.
round_tag of_round_nine(std::int64_t i) {
  return {layer_hash("bn2"), 1, 9, i};
}

} // namespace

TEST_CASE_FIXTURE(system_fixture,
                  "the round completes without the dead, and so do the next "
                  "ones") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(3);
  auto zero = c.lead(1);
  auto one = c.send(pipes[0], 1, 10);
  auto two = c.send(pipes[1], 2, 20);
  c.settle();
  c.kill(3);
  for (auto x : {zero(), one(), two()})
    CHECK(x.value == 31);
  CHECK(c.nr_slaves() == 2);
  auto next = c.send(pipes[0], 1, 10);
  auto last = c.send(pipes[1], 2, 20);
  CHECK(c.lead(2)().value == 32);
}

TEST_CASE_FIXTURE(system_fixture,
                  "a late slave is expelled at the deadline and told so when "
                  "it comes") {
  adder c{system, bn2(50ms), add_up};
  auto pipes = c.pipes(2);
  auto one = c.send(pipes[0], 1, 10);
  CHECK(c.lead(1)().value == 11);
  CHECK(one().value == 11);
  CHECK(c.send(pipes[1], 2, 20)().failed(errc::deadline_exceeded,
                                         {"for replica 2"}));
  auto next = c.send(pipes[0], 1, 10);
  CHECK(c.lead(2)().value == 12);
}

TEST_CASE_FIXTURE(system_fixture,
                  "a slave that comes twice is expelled with its message") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(2);
  auto tag = round_tag{layer_hash("bn2"), 1, 1, 1};
  auto first = c.send_tagged(1, tag, 10);
  auto again = c.send_tagged(1, tag, 10);
  CHECK(first().failed(errc::duplicate_message));
  CHECK(again().failed(errc::duplicate_message));
  auto two = c.send(pipes[1], 2, 20);
  CHECK(c.lead(1)().value == 21);
  CHECK(two().value == 21);
}

TEST_CASE_FIXTURE(system_fixture,
                  "an actor that stands for two replicas and dies is missed "
                  "for neither") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(2);
  REQUIRE(c.enlist(1, 3).value);
  auto zero = c.lead(1);
  auto two = c.send(pipes[1], 2, 10);
  c.settle();
  c.kill(1);
  CHECK(zero().value == 11);
  CHECK(two().value == 11);
  CHECK(c.nr_slaves() == 1);
}

TEST_CASE_FIXTURE(system_fixture,
                  "an owner that comes twice ends the round for everybody: "
                  "none goes on without it") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(1);
  auto zero = c.lead(0);
  auto again = c.lead(0);
  CHECK(zero().failed(errc::duplicate_message, {"the owner"}));
  CHECK(again().failed(errc::duplicate_message));
  CHECK(c.send(pipes[0], 1, 1)().failed(errc::duplicate_message));
  auto pipe = c.pipe(1);
  auto one = c.send(pipe, 1, 10);
  CHECK(c.lead(1)().value == 11);
  CHECK(one().value == 11);
}

TEST_CASE_FIXTURE(system_fixture,
                  "the round completes at once when the last one that it waits "
                  "for gives up or is refused") {
  for (bool refused : {false, true}) {
    adder c{system, bn2(), add_up};
    auto pipes = c.pipes(2);
    auto zero = c.lead(1);
    auto one = c.send(pipes[0], 1, 10);
    if (refused)
      CHECK(c.send_tagged(2, of_round_nine(2), 1)().failed(
          errc::wrong_round, {"replica 2", "round 9"}));
    else
      pipes[1].give_up(c.actor(2), "out of memory");
    CHECK(zero().value == 11);
    CHECK(one().value == 11);
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "who was expelled is told why, but not in the next "
                  "generation") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(2);
  auto expelled = c.send_tagged(2, of_round_nine(2), 1);
  CHECK(expelled().failed(errc::wrong_round));
  auto one = c.send(pipes[0], 1, 10);
  CHECK(c.lead(1)().value == 11);
  CHECK(one().value == 11);
  CHECK(c.send(pipes[1], 2, 1)().failed(errc::wrong_round));
  auto next = c.pipe(1);
  auto late = c.send_tagged(2, round_tag{layer_hash("bn2"), 2, 1, 2}, 1);
  CHECK(late().failed(errc::unregistered, {"replica 2"}));
}

TEST_CASE_FIXTURE(system_fixture,
                  "a round that goes on without those who never registered "
                  "counts as late") {
  auto options = bn2(50ms);
  options.participants = 3;
  adder c{system, options, add_up};
  auto pipe = c.pipe(1);
  for (int round = 1; round <= 2; ++round) {
    auto one = c.send(pipe, 1, 10);
    CHECK(c.lead(1)().value == 11);
    CHECK(one().value == 11);
  }
  sync_metrics metrics;
  read_metrics(c.actor(0), c.master())
      .receive([&](sync_metrics& x) { metrics = std::move(x); },
               [](const caf::error& x) { FAIL(describe(x)); });
  REQUIRE(metrics.failures.size() == 1);
  CHECK(metrics.failures[0].cause == errc::deadline_exceeded);
  CHECK(metrics.failures[0].count == 1);
}

TEST_CASE_FIXTURE(system_fixture,
                  "the number of participants that a reduction names is no "
                  "limit for those who are left") {
  auto sum = sum_of_blocks();
  sum.participants = 3;
  replica_tree<block, block> tree{
      system, spawn_sync_master<block, block>(system, bn2(), std::move(sum))};
  tree.enlist(tree.master(), replica_range{1, 2});
  tree.kill(2);
  for (auto& x : tree.run(2, [](std::int64_t) { return block{1}; }))
    CHECK_MESSAGE(x.value == block{2}, x.text());
}
