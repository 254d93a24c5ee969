#include "tests/actors/fake_relay.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

// A relay's messages of other generations and other rounds.

namespace {

/// Behind a relay replica 2 has died and 1 has sent its message: the relay
/// waits for the answer.
struct waiting_relay : relay_master {
  block_master relay = add_relay(master(), "bn1", {1, 2}, merge_blocks);
  std::function<outcome<block>()> one;

  explicit waiting_relay(caf::actor_system& system)
      : relay_master{system, bn1(survivors)} {
    enlist(relay, replica_range{1, 2});
    kill(2);
    settle(*this, relay);
    one = send(1, block{1});
    settle(*this, relay);
  }
};

/// Meanwhile 2 has come back and sent the message of the next round.
struct early_return : waiting_relay {
  outcome<slave_ticket> ticket;
  std::function<outcome<block>()> two;

  explicit early_return(caf::actor_system& system) : waiting_relay{system} {
    ticket = enlist(relay, 2);
    REQUIRE_MESSAGE(ticket.value, ticket.text());
    CHECK(ticket.value->first.round == 2);
    two = send(2, block{5});
    settle(*this, relay);
  }
};

} // namespace

TEST_CASE_FIXTURE(system_fixture, "with survivors, who comes back while its "
                                  "relay waits for the round's answer may send "
                                  "at once: it is in the next round") {
  early_return tree{system};
  auto zero = tree.send(0, block{10});
  CHECK(zero().value == block{11});
  CHECK(tree.one().value == block{11});
  auto next = tree.send(1, block{1});
  zero = tree.send(0, block{10});
  for (auto& x : {zero, next, tree.two})
    CHECK(x().value == block{16});
}

TEST_CASE_FIXTURE(system_fixture, "with survivors, who comes back while its "
                                  "relay waits for the round's answer learns "
                                  "that the round has failed") {
  early_return tree{system};
  caf::anon_send_exit(tree.master(), caf::exit_reason::kill);
  CHECK(tree.one().failed(errc::master_down));
  CHECK(tree.two().failed(errc::master_down));
}

TEST_CASE_FIXTURE(system_fixture, "with survivors, who sends twice while its "
                                  "relay waits for the round's answer is "
                                  "expelled, and no third message is kept") {
  early_return tree{system};
  for (auto code : {errc::duplicate_message, errc::duplicate_message}) {
    tree.pipe(2) = {tree.relay, *tree.ticket.value};
    CHECK(tree.send(2, block{5})().failed(code));
  }
  CHECK(tree.send(0, block{10})().value == block{11});
  CHECK(tree.one().value == block{11});
  CHECK(tree.two().failed(errc::duplicate_message));
}

TEST_CASE_FIXTURE(system_fixture,
                  "with survivors, what others send in the name of who comes "
                  "back while its relay waits is not kept, and harms nobody") {
  for (bool by_a_stranger : {true, false}) {
    waiting_relay tree{system};
    auto ticket = tree.enlist(tree.relay, 2);
    REQUIRE(ticket.value);
    const auto& tag = ticket.value->first;
    caf::scoped_actor stranger{system};
    // Its own actor sends it as a relay would.
    auto refused =
        by_a_stranger ? tree_type::later(detail::request(
            stranger, tree.relay, run_slave_atom_v, tag, block{100}))
                      : tree_type::later(detail::request(
                          tree.actor(2), tree.relay, run_relay_atom_v, tag,
                          relay_parts{{}, {2}, caf::make_message(block{100})}));
    settle(tree, tree.relay);
    auto two = tree.send(2, block{5});
    settle(tree, tree.relay);
    CHECK(tree.send(0, block{10})().value == block{11});
    CHECK(tree.one().value == block{11});
    CHECK_FALSE(refused().value);
    auto zero = tree.send(0, block{10});
    auto one = tree.send(1, block{1});
    for (auto& x : {zero, one, two}) {
      auto got = x();
      CHECK_MESSAGE(got.value == block{16}, got.text());
    }
  }
}

TEST_CASE_FIXTURE(system_fixture, "with survivors, a second message while the "
                                  "relay waits is not kept for the next round "
                                  "of who has sent the first") {
  waiting_relay tree{system};
  auto again = tree.send(1, block{1});
  settle(tree, tree.relay);
  auto zero = tree.send(0, block{10});
  CHECK(tree.one().failed(errc::duplicate_message));
  CHECK(again().failed(errc::duplicate_message));
  CHECK(zero().value == block{10});
}

TEST_CASE_FIXTURE(system_fixture, "with survivors, what was sent for the next "
                                  "round by who has died since does not count "
                                  "for its successor") {
  early_return tree{system};
  tree.kill(2);
  settle(tree, tree.relay);
  REQUIRE(tree.enlist(tree.relay, 2).value);
  auto successor = tree.send(2, block{7});
  settle(tree, tree.relay);
  CHECK(tree.send(0, block{10})().value == block{11});
  CHECK(tree.one().value == block{11});
  auto zero = tree.send(0, block{10});
  auto one = tree.send(1, block{1});
  for (auto& x : {zero, one, successor}) {
    auto got = x();
    CHECK_MESSAGE(got.value == block{18}, got.text());
  }
}

TEST_CASE_FIXTURE(system_fixture, "with survivors, what a thread has sent for "
                                  "the next round does not count for its "
                                  "successor when it has let go of its pipe") {
  waiting_relay tree{system};
  {
    auto gone = register_slave_thread<block, block>(system, tree.relay, 2);
    REQUIRE(gone);
    std::ignore = gone->run_slave_async(block{100});
  }
  std::optional<slave_pipe<block, block>> next;
  // Until the relay knows that it has gone.
  while (!next)
    if (auto x = register_slave_thread<block, block>(system, tree.relay, 2))
      next.emplace(std::move(*x));
  CHECK(tree.send(0, block{10})().value == block{11});
  CHECK(tree.one().value == block{11});
  auto zero = tree.send(0, block{10});
  auto one = tree.send(1, block{1});
  settle(tree, tree.relay);
  CHECK(outcome_of(next->run_slave(block{7})).value == block{18});
  CHECK(zero().value == block{18});
  CHECK(one().value == block{18});
}

TEST_CASE_FIXTURE(system_fixture, "a relay's report of a failure in an earlier "
                                  "generation does not fail the next one") {
  relay_master tree{system};
  fake_relay relay{system, tree, {1, 2}};
  auto zero = tree.send(0, block{1});
  CHECK(relay.send(block{2})().value == block{3});
  CHECK(zero().value == block{3});
  auto before = relay.tag;
  relay.enlist();
  zero = tree.send(0, block{1});
  relay.report_failure(before);
  auto x = relay.send(block{2})();
  CHECK_MESSAGE(x.value == block{3}, x.text());
  CHECK(zero().value == block{3});
}

TEST_CASE_FIXTURE(system_fixture, "a relay's report of a failure in a round "
                                  "that was answered ends the next one, which "
                                  "says so") {
  relay_master tree{system};
  fake_relay relay{system, tree, {1, 2}};
  auto zero = tree.send(0, block{1});
  CHECK(relay.send(block{2})().value == block{3});
  CHECK(zero().value == block{3});
  relay.report_failure(relay.tag);
  auto next = tree.send(0, block{1})();
  CHECK_MESSAGE(next.text()
                    == "participant_failed: layer bn1, round 2: the relay of "
                       "replicas 1 to 2 has left in round 1 (a report)",
                next.text());
}

TEST_CASE_FIXTURE(system_fixture, "of what a relay reports, an error has the "
                                  "beginning") {
  relay_master tree{system};
  fake_relay relay{system, tree, {1, 2}};
  auto zero = tree.send(0, block{1});
  relay.report_failure(relay.tag, std::string(1'000'000, 'x'));
  auto got = zero();
  CHECK(got.failed(errc::participant_failed, {"xxx"}));
  CHECK(got.text().size() < 3000);
}

TEST_CASE_FIXTURE(system_fixture, "what a relay has sent counts in its round "
                                  "only, also for slaves in its place") {
  relay_master tree{system};
  fake_relay relay{system, tree, {1, 2}};
  auto zero = tree.send(0, block{1});
  auto one = relay.send(block{2});
  CHECK(zero().value == block{3});
  CHECK(one().value == block{3});
  tree.enlist(tree.master(), replica_range{1, 2});
  for (auto& x : tree.run(3, [](std::int64_t) { return block{10}; }))
    CHECK_MESSAGE(x.value == block{30}, x.text());
}

TEST_CASE_FIXTURE(system_fixture, "what a relay has sent that was expelled "
                                  "does not count, also for a slave in its "
                                  "place") {
  relay_master tree{system, bn1(survivors)};
  fake_relay relay{system, tree, {1, 1}};
  auto first = relay.send(block{2});
  auto again = relay.send(block{2});
  CHECK(first().failed(errc::duplicate_message));
  CHECK(again().failed(errc::duplicate_message));
  tree.enlist(tree.master(), replica_range{1, 1});
  for (auto& x : tree.run(2, [](std::int64_t) { return block{10}; }))
    CHECK_MESSAGE(x.value == block{20}, x.text());
}

TEST_CASE("a new generation waits for everybody again, whomever the last one "
          "went on without") {
  for (bool closed : {false, true}) {
    detail::roster all{1, 2};
    REQUIRE(all.add(detail::participant::slave(1), ""));
    if (closed)
      all.close();
    else
      all.erase(0);
    all.clear();
    REQUIRE(all.add(detail::participant::slave(2), ""));
    CHECK_FALSE(all.is_full());
  }
}

TEST_CASE_FIXTURE(system_fixture, "the deadline of a round counts from the "
                                  "first message behind a relay") {
  relay_master tree{system};
  fake_relay relay{system, tree, {1, 2}};
  CHECK(relay.send(block{2}, 1h)().failed(errc::deadline_exceeded,
                                          {"for replica 0;"}));
}

TEST_CASE_FIXTURE(system_fixture, "a relay that says that it has waited for "
                                  "longer than the deadline puts no such time "
                                  "into the metrics") {
  relay_master tree{system};
  fake_relay relay{system, tree, {1, 2}};
  auto zero = tree.send(0, block{1});
  CHECK(relay.send(block{2}, 1000h)().value == block{3});
  CHECK(zero().value == block{3});
  auto counted = metrics_of(tree, tree.master());
  CHECK(counted.rounds == 1);
  CHECK(counted.waited < 2h);
}

TEST_CASE_FIXTURE(system_fixture, "a relay that was told of a round's failure "
                                  "is not told of it again by what it sends "
                                  "then") {
  relay_master tree{system};
  fake_relay relay{system, tree, {1, 2}};
  tree.enlist(tree.master(), replica_range{3, 1});
  auto zero = tree.send(0, block{1});
  settle(tree, tree.master());
  tree.kill(3);
  CHECK(zero().failed(errc::participant_down));
  CHECK(relay.send(block{1})().failed(errc::stale));
}

TEST_CASE_FIXTURE(system_fixture, "a slave fails no round by a relay's "
                                  "report") {
  relay_master tree{system};
  tree.enlist(tree.master(), replica_range{1, 1});
  detail::send(tree.actor(1), tree.master(), round_failed_atom_v, tag_of(1),
               make_error(errc::participant_failed, "a report"));
  auto zero = tree.send(0, block{1});
  CHECK(tree.send(1, block{2})().value == block{3});
  CHECK(zero().value == block{3});
}
