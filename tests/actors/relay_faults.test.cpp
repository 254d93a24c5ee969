#include "tests/actors/relay_tree.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

// Relays that are mute, late, at fault or gone, and strangers.

namespace {

using tree_type = replica_tree<block, block>;
using promise_type = caf::typed_response_promise<slave_ticket>;

constexpr auto survivors = failure_policy::continue_with_survivors;

/// A deadline of one hour tells a round that ends at once from one that ends at
/// its deadline.
sync_options bn1(failure_policy policy = failure_policy::fail_round,
                 caf::timespan deadline = 1h) {
  return {.layer = "bn1", .deadline = deadline, .policy = policy};
}

/// A tag of the first generation.
round_tag tag_of(std::int64_t identifier, std::uint64_t round = 1) {
  return {layer_hash("bn1"), 1, round, identifier};
}

/// A master that adds, and its replicas.
struct relay_master : tree_type {
  explicit relay_master(caf::actor_system& system, sync_options options = bn1())
      : tree_type{system, spawn_sync_master<block, block>(
                              system, std::move(options), sum_of_blocks())} {}
};

/// Returns when `to` has handled what was sent to it before.
void settle(tree_type& tree, const block_master& to) {
  detail::request(tree.actor(0), to, nr_slaves_atom_v)
      .receive([](std::uint64_t) {},
               [](const caf::error& x) { FAIL(describe(x)); });
}

/// A relay whose every message the test sends itself.
class fake_relay {
public:
  fake_relay(caf::actor_system& system, const tree_type& tree,
             replica_range range)
      : self_{system},
        master_{tree.master()},
        range_{range} {
    enlist();
  }

  void enlist() {
    detail::request(self_, master_, register_relay_atom_v, range_.first,
                    range_.count)
        .receive([this](slave_ticket& x) { tag = x.first; },
                 [](const caf::error& x) { FAIL(describe(x)); });
  }

  auto send(const relay_parts& parts) {
    return tree_type::later(
        detail::request(self_, master_, run_relay_atom_v, tag, parts));
  }

  /// The value of its first replica, for all of them.
  auto send(block value, caf::timespan waited = {}) {
    return send(relay_parts{
        waited, {range_.first}, caf::make_message(std::move(value))});
  }

  /// As a slave would.
  auto send_as_slave(block value) {
    return tree_type::later(detail::request(self_, master_, run_slave_atom_v,
                                            tag, std::move(value)));
  }

  void report_failure(const round_tag& where) {
    detail::send(self_, master_, round_failed_atom_v, where,
                 make_error(errc::participant_failed, "a report"));
  }

  round_tag tag;

private:
  caf::scoped_actor self_;
  block_master master_;
  replica_range range_;
};

/// A parent that answers registrations when it is told to go, and puts into
/// `told` that its relay has failed.
caf::behavior
hesitant_parent(caf::event_based_actor* self,
                const std::shared_ptr<future_result<round_tag>>& told) {
  auto promise = std::make_shared<promise_type>();
  return {
      [self, promise](register_relay_atom, std::int64_t,
                      std::int64_t) -> caf::result<slave_ticket> {
        *promise = self->make_response_promise<slave_ticket>();
        return *promise;
      },
      [promise](go_atom) {
        promise->deliver(slave_ticket{tag_of(1), 1h, false});
      },
      [told](round_failed_atom, const round_tag& tag, const caf::error&) {
        std::ignore = told->put(tag);
      },
  };
}

/// A parent that goes on with survivors, asks a relay whom it waits for when it
/// is told to, and answers with what that has.
caf::behavior inquisitive_parent(caf::event_based_actor* self) {
  return {
      [](register_relay_atom, std::int64_t first, std::int64_t) {
        return slave_ticket{tag_of(first), 1h, true};
      },
      [self](late_atom, const caf::actor& relay) {
        detail::send(self, caf::actor_cast<block_master>(relay),
                     report_late_atom_v, tag_of(1), caf::timespan{1h});
      },
      [](run_relay_atom, const round_tag&, const relay_parts& parts) {
        return parts.values.get_as<block>(0);
      },
  };
}

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

// -- other generations and other rounds ---------------------------------------

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

// -- strangers ----------------------------------------------------------------

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

// -- between a relay and its parent -------------------------------------------

TEST_CASE_FIXTURE(system_fixture,
                  "a relay that was refused registers again when its replicas "
                  "are free") {
  relay_master tree{system, bn1(survivors)};
  auto relay = tree.add_relay(tree.master(), "bn1", {5, 2}, merge_blocks);
  tree.enlist(tree.master(), replica_range{6, 1});
  CHECK(tree.enlist(relay, 5).failed(errc::duplicate_identifier));
  tree.kill(6);
  settle(tree, tree.master());
  auto five = tree.enlist(relay, 5);
  CHECK_MESSAGE(five.value, five.text());
}

TEST_CASE_FIXTURE(system_fixture,
                  "a parent learns of a replica that left while the parent was "
                  "asked") {
  auto told = std::make_shared<future_result<round_tag>>();
  auto parent = system.spawn(hesitant_parent, told);
  tree_type tree{system, caf::actor_cast<block_master>(parent)};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 1}, merge_blocks);
  {
    caf::scoped_actor gone{system};
    std::ignore = register_slave(gone, relay, 1);
    settle(tree, relay);
  }
  settle(tree, relay);
  detail::anon_send(parent, go_atom_v);
  CHECK(told->get() == tag_of(1));
}

TEST_CASE_FIXTURE(system_fixture, "a relay that exits answers those who wait "
                                  "for their tickets") {
  auto told = std::make_shared<future_result<round_tag>>();
  auto parent = system.spawn(hesitant_parent, told);
  tree_type tree{system, caf::actor_cast<block_master>(parent)};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 1}, merge_blocks);
  auto ticket = register_slave(tree.actor(1), relay, 1);
  settle(tree, relay);
  caf::anon_send_exit(relay, caf::exit_reason::user_shutdown);
  outcome<slave_ticket> x;
  std::move(ticket).receive([&](slave_ticket& y) { x(y); },
                            [&](caf::error& y) { x(y); });
  CHECK_MESSAGE(x.failed(errc::master_down, {"the relay has exited"}),
                x.text());
}

TEST_CASE_FIXTURE(system_fixture,
                  "with survivors, a relay that is asked whom it waits for "
                  "goes on without replicas that never registered") {
  auto parent = system.spawn(inquisitive_parent);
  tree_type tree{system, caf::actor_cast<block_master>(parent)};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 2}, merge_blocks);
  tree.enlist(relay, replica_range{1, 1});
  auto one = tree.send(1, block{7});
  detail::anon_send(parent, late_atom_v, caf::actor_cast<caf::actor>(relay));
  auto x = one();
  CHECK_MESSAGE(x.value == block{7}, x.text());
}

TEST_CASE_FIXTURE(system_fixture,
                  "with survivors, a relay that is asked before any of its own "
                  "relays has sent goes on with the replicas behind those") {
  auto parent = system.spawn(inquisitive_parent);
  tree_type tree{system, caf::actor_cast<block_master>(parent)};
  auto relay = tree.add_relay(tree.master(), "bn1", {4, 4}, merge_blocks);
  auto first = tree.add_relay(relay, "bn1", {4, 2}, merge_blocks);
  auto second = tree.add_relay(relay, "bn1", {6, 2}, merge_blocks);
  tree.enlist(first, replica_range{4, 2});
  tree.enlist(second, replica_range{6, 2});
  auto four = tree.send(4, block{1});
  auto six = tree.send(6, block{2});
  settle(tree, first);
  settle(tree, second);
  detail::anon_send(parent, late_atom_v, caf::actor_cast<caf::actor>(relay));
  for (auto* wait : {&four, &six}) {
    auto x = (*wait)();
    CHECK_MESSAGE(x.value == block{3}, x.text());
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "with survivors, a relay whose only replica has died waits "
                  "for those who have not registered yet") {
  relay_master tree{system, bn1(survivors)};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 2}, merge_blocks);
  tree.enlist(relay, replica_range{1, 1});
  tree.kill(1);
  settle(tree, relay);
  auto zero = tree.send(0, block{1});
  tree.enlist(relay, replica_range{2, 1});
  CHECK(tree.send(2, block{1})().value == block{2});
  auto x = zero();
  CHECK_MESSAGE(x.value == block{2}, x.text());
}
