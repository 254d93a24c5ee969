#include "tests/actors/fake_relay.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

// Relays that are mute, late or at fault, and strangers.

namespace {

/// A parent that has registered a relay, and then says nothing.
caf::behavior silent_parent(caf::event_based_actor*) {
  return {
      [](register_relay_atom, std::int64_t first, std::int64_t) {
        return slave_ticket{tag_of(first), 100ms, false};
      },
      [](round_failed_atom, const round_tag&, const caf::error&) {},
  };
}

} // namespace

TEST_CASE_FIXTURE(system_fixture, "a relay that does not say whom it waits for "
                                  "is named with all its replicas") {
  relay_master tree{system, bn1(failure_policy::fail_round, 200ms)};
  fake_relay relay{system, tree, {1, 2}};
  auto zero = tree.send(0, block{1})();
  CHECK_MESSAGE(zero.failed(errc::deadline_exceeded, {"for replicas 1, 2;"}),
                zero.text());
}

TEST_CASE_FIXTURE(system_fixture, "a relay that says that it has waited for a "
                                  "negative time moves no deadline") {
  relay_master tree{system, bn1(failure_policy::fail_round, 200ms)};
  fake_relay relay{system, tree, {1, 2}};
  CHECK(relay.send(block{2}, -1h)().failed(errc::deadline_exceeded,
                                           {"for replica 0;"}));
}

TEST_CASE_FIXTURE(system_fixture, "with survivors, a round completes at once "
                                  "when the relay that it waits for sends what "
                                  "is malformed, or for another round") {
  for (bool malformed : {true, false}) {
    relay_master tree{system, bn1(survivors)};
    fake_relay relay{system, tree, {2, 2}};
    tree.enlist(tree.master(), replica_range{1, 1});
    auto zero = tree.send(0, block{1});
    auto one = tree.send(1, block{1});
    if (!malformed)
      relay.tag.round = 9;
    auto refused = malformed ? relay.send(relay_parts{}) : relay.send(block{2});
    CHECK(refused().failed(malformed ? errc::malformed_message
                                     : errc::wrong_round));
    CHECK(zero().value == block{2});
    CHECK(one().value == block{2});
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a relay's message does not come as a slave's, nor a slave's "
                  "as a relay's, and the round runs with the right ones") {
  relay_master tree{system};
  fake_relay relay{system, tree, {1, 2}};
  tree.enlist(tree.master(), replica_range{3, 1});
  CHECK(relay.send_as_slave(block{5})().failed(errc::unregistered));
  auto as_relay = tree_type::later(
      detail::request(tree.actor(3), tree.master(), run_relay_atom_v, tag_of(3),
                      relay_parts{{}, {3}, caf::make_message(block{5})}));
  CHECK(as_relay().failed(errc::unregistered));
  auto zero = tree.send(0, block{1});
  auto one = relay.send(block{2});
  auto three = tree.send(3, block{3});
  for (auto* x : {&zero, &one, &three})
    CHECK((*x)().value == block{6});
}

TEST_CASE_FIXTURE(system_fixture, "a relay that is late names whom it waits "
                                  "for, and says of whom it knows") {
  relay_master tree{system, bn1(failure_policy::fail_round, 50ms)};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 2}, merge_blocks);
  tree.enlist(relay, replica_range{1, 2});
  tree.enlist(tree.master(), 3);
  auto three = tree.send(3, block{1});
  for (auto& x : {tree.send(0, block{10}), three})
    CHECK(x().failed(errc::deadline_exceeded,
                     {"for replicas 1, 2; of replicas 1 to 2 have nobody"}));
}

TEST_CASE_FIXTURE(system_fixture, "of several late relays each one names whom "
                                  "it waits for, in one error") {
  relay_master tree{system, bn1(failure_policy::fail_round, 200ms)};
  auto first = tree.add_relay(tree.master(), "bn1", {1, 3}, merge_blocks);
  auto second = tree.add_relay(tree.master(), "bn1", {4, 2}, merge_blocks);
  tree.enlist(first, replica_range{1, 3});
  tree.enlist(second, replica_range{4, 2});
  std::vector<std::function<outcome<block>()>> waiting;
  for (std::int64_t i : {0, 1, 3, 5})
    waiting.push_back(tree.send(i, block{1}));
  for (auto& x : waiting) {
    auto result = x();
    CHECK_MESSAGE(
        result.failed(errc::deadline_exceeded,
                      {"waited 0.2 s for replica 2; of replicas 1 to 3 have "
                       "replicas 1, 3",
                       "; waited 0.2 s for replica 4; of replicas 4 to 5 have "
                       "replica 5"}),
        result.text());
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a relay that is late before the owner has come "
                  "learns who else is, the owner too") {
  relay_master tree{system, bn1(failure_policy::fail_round, 100ms)};
  auto first = tree.add_relay(tree.master(), "bn1", {1, 2}, merge_blocks);
  auto second = tree.add_relay(tree.master(), "bn1", {3, 2}, merge_blocks);
  tree.enlist(first, replica_range{1, 2});
  tree.enlist(second, replica_range{3, 2});
  auto result = tree.send(1, block{1})();
  CHECK_MESSAGE(
      result.failed(errc::deadline_exceeded,
                    {"round 1: waited 0.1 s for replica 0; have nobody; waited "
                     "0.1 s for replica 2; of replicas 1 to 2 have replica 1; "
                     "waited 0.1 s for replicas 3, 4; of replicas 3 to 4 have "
                     "nobody"}),
      result.text());
}

TEST_CASE_FIXTURE(system_fixture,
                  "a late relay whose parent says nothing names "
                  "whom it waits for itself") {
  tree_type tree{system,
                 caf::actor_cast<block_master>(system.spawn(silent_parent))};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 2}, merge_blocks);
  tree.enlist(relay, replica_range{1, 2});
  auto result = tree.send(1, block{1})();
  CHECK_MESSAGE(
      result.failed(errc::deadline_exceeded,
                    {"for replica 2; of replicas 1 to 2 have replica 1"}),
      result.text());
}

TEST_CASE_FIXTURE(system_fixture, "beside a late relay that names whom it "
                                  "waits for, those are named who are silent") {
  relay_master tree{system, bn1(failure_policy::fail_round, 200ms)};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 2}, merge_blocks);
  tree.enlist(relay, replica_range{1, 2});
  fake_relay mute{system, tree, {3, 2}};
  tree.enlist(tree.master(), 5);
  auto one = tree.send(1, block{1});
  for (auto& x : {tree.send(0, block{10}), one}) {
    auto result = x();
    CHECK_MESSAGE(
        result.failed(errc::deadline_exceeded,
                      {"waited 0.2 s for replicas 3, 4, 5; have replica 0",
                       "; waited 0.2 s for replica 2; of replicas 1 to 2 have "
                       "replica 1"}),
        result.text());
  }
}

TEST_CASE("beside a late relay that names whom it waits for, those are named "
          "who have not registered") {
  detail::roster members{1, 4};
  auto position = members.add(detail::participant::relay(1, 2), "");
  REQUIRE(position);
  members[*position].reported = true;
  auto text = detail::late_text("here", 1s, members, {{1, "here: a report"}});
  CHECK(text
        == "here: waited 1 s for replicas 3, 4; of replicas 1 to 4 have "
           "nobody; a report");
}

TEST_CASE("of a late relay that has somebody the report stays, though it ends "
          "with somebody that has nobody") {
  detail::roster members{1, 4};
  auto position = members.add(detail::participant::relay(1, 4), "");
  REQUIRE(position);
  members[*position].reported = true;
  const std::string report = "for 2; of 1 to 2 have replica 1; for 3; of 3 to "
                             "4 have nobody";
  CHECK(detail::late_text("here", 1s, members, {{1, report}})
        == "here: " + report);
}

TEST_CASE_FIXTURE(system_fixture, "with survivors, a round whose messages were "
                                  "all those of replicas that are gone begins "
                                  "anew: a late relay is asked again") {
  relay_master tree{system, bn1(survivors, 50ms)};
  tree.enlist(tree.master(), replica_range{1, 2});
  caf::scoped_actor late{system};
  detail::request(late, tree.master(), register_relay_atom_v, std::int64_t{4},
                  std::int64_t{2})
      .receive([](const slave_ticket&) {},
               [](const caf::error& x) { FAIL(describe(x)); });
  auto asked = 0;
  auto expect_question = [&] {
    late->receive(
        [&](report_late_atom, const round_tag&, caf::timespan) { ++asked; },
        [](round_failed_atom, const round_tag&, const caf::error& why) {
          FAIL(describe(why));
        });
  };
  auto one = tree.send(1, block{1});
  expect_question();
  tree.kill(1);
  settle(tree, tree.master());
  auto two = tree.send(2, block{1});
  expect_question();
  CHECK(asked == 2);
}

TEST_CASE_FIXTURE(system_fixture, "a stranger neither fails a round in a "
                                  "relay's name nor hurries a relay") {
  relay_master tree{system};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 2}, merge_blocks);
  tree.enlist(relay, replica_range{1, 2});
  auto one = tree.send(1, block{1});
  caf::scoped_actor stranger{system};
  detail::send(stranger, tree.master(), round_failed_atom_v, tag_of(1),
               make_error(errc::participant_failed, "a lie"));
  detail::send(stranger, relay, report_late_atom_v, tag_of(1),
               caf::timespan{1});
  auto zero = tree.send(0, block{1});
  auto two = tree.send(2, block{1});
  for (auto* wait : {&zero, &one, &two}) {
    auto x = (*wait)();
    CHECK_MESSAGE(x.value == block{3}, x.text());
  }
}
