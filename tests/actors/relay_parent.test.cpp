// Relays whose parents are slow, silent, or answer registrations late.

#include "tests/actors/relay_tree.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

using tree_type = replica_tree<block, block>;

constexpr auto grace = std::chrono::milliseconds{40};

/// A parent that asks its relay whom it waits for, and answers its message long
/// after the time that it gave it.
class slow_parent : public caf::event_based_actor {
public:
  explicit slow_parent(caf::actor_config& config,
                       caf::timespan deadline = std::chrono::seconds{20})
      : caf::event_based_actor{config},
        deadline_{deadline} {}

  caf::behavior make_behavior() override {
    return {
        [this](register_relay_atom, std::int64_t first, std::int64_t) {
          return slave_ticket{
              {layer_hash("bn1"), 1, 1, first}, deadline_, false};
        },
        [this](late_atom, const caf::actor& relay) {
          detail::send(
              this, caf::actor_cast<block_master>(relay), report_late_atom_v,
              round_tag{layer_hash("bn1"), 1, 1, 4}, caf::timespan{grace});
        },
        [this](run_relay_atom, const round_tag&,
               const relay_parts&) -> caf::result<block> {
          promise_ = make_response_promise<block>();
          detail::delayed_send(this, caf::actor{this}, grace * 4, go_atom_v);
          return promise_;
        },
        [this](go_atom) { promise_.deliver(block{7}); },
        [this](round_failed_atom, const round_tag&, const caf::error& why) {
          promise_.deliver(why);
        },
    };
  }

private:
  caf::timespan deadline_;
  caf::typed_response_promise<block> promise_;
};

} // namespace

TEST_CASE_FIXTURE(system_fixture,
                  "a relay that is complete has the patience of a thread: a "
                  "parent may calculate past the deadline") {
  auto parent = system.spawn<slow_parent>(grace);
  tree_type tree{system, caf::actor_cast<block_master>(parent)};
  auto relay = tree.add_relay(tree.master(), "bn1", {4, 1}, merge_blocks);
  tree.enlist(relay, replica_range{4, 1});
  auto four = tree.send(4, block{1})();
  CHECK_MESSAGE(four.value == block{7}, four.text());
}

TEST_CASE_FIXTURE(system_fixture,
                  "a relay whose replicas came late does not move the round's "
                  "deadline: all are told who was missing") {
  tree_type tree{
      system,
      spawn_sync_master<block, block>(
          system, {.layer = "bn1", .deadline = std::chrono::milliseconds{1600}},
          sum_of_blocks())};
  auto punctual = tree.add_relay(tree.master(), "bn1", {1, 2}, merge_blocks);
  auto late = tree.add_relay(tree.master(), "bn1", {3, 2}, merge_blocks);
  tree.enlist(punctual, replica_range{1, 2});
  tree.enlist(late, replica_range{3, 2});
  tree.enlist(tree.master(), replica_range{5, 1});
  caf::scoped_actor clock{system};
  auto pass = [&clock](int ms) {
    clock->receive(caf::after(std::chrono::milliseconds{ms}) >> [] {});
  };
  std::vector<std::function<outcome<block>()>> replies;
  for (auto identifier : {0, 1, 2})
    replies.push_back(tree.send(identifier, block{1}));
  pass(700);
  replies.push_back(tree.send(3, block{1}));
  pass(600);
  replies.push_back(tree.send(4, block{1}));
  for (auto& reply : replies) {
    auto x = reply();
    CHECK_MESSAGE(x.failed(errc::deadline_exceeded, {"for replica 5"}),
                  x.text());
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a relay that is complete waits for its parent, however "
                  "little time it had to say who was late") {
  auto parent = system.spawn<slow_parent>();
  tree_type tree{system, caf::actor_cast<block_master>(parent)};
  auto relay = tree.add_relay(tree.master(), "bn1", {4, 4}, merge_blocks);
  caf::scoped_actor below{system};
  detail::request(below, relay, register_relay_atom_v, std::int64_t{6},
                  std::int64_t{2})
      .receive([](const slave_ticket&) {},
               [](const caf::error& x) { FAIL(describe(x)); });
  tree.enlist(relay, replica_range{4, 2});
  auto four = tree.send(4, block{1});
  auto five = tree.send(5, block{1});
  detail::anon_send(parent, late_atom_v, caf::actor_cast<caf::actor>(relay));
  round_tag late;
  below->receive([&](report_late_atom, const round_tag& tag, caf::timespan) {
    late = tag;
  });
  auto six = tree_type::later(detail::request(
      below, relay, run_relay_atom_v, late,
      relay_parts{caf::timespan{0}, {6}, caf::make_message(block{2})}));
  for (auto* x : {&four, &five, &six}) {
    auto got = (*x)();
    CHECK_MESSAGE(got.value == block{7}, got.text());
  }
}

namespace {

/// A parent that goes on with survivors, and takes a relay's message without an
/// answer.
caf::behavior silent_parent() {
  return {
      [](register_relay_atom, std::int64_t first, std::int64_t) {
        return slave_ticket{{layer_hash("bn1"), 1, 1, first}, grace, true};
      },
      [](run_relay_atom, const round_tag&, const relay_parts&) {
        return caf::delegated<block>{};
      },
      [](round_failed_atom, const round_tag&, const caf::error&) {},
  };
}

/// A parent that answers registrations when it is told to go, and a message at
/// once.
class hesitant_parent : public caf::event_based_actor {
public:
  explicit hesitant_parent(caf::actor_config& config, bool survivors = false)
      : caf::event_based_actor{config},
        survivors_{survivors} {}

  caf::behavior make_behavior() override {
    return {
        [this](register_relay_atom, std::int64_t,
               std::int64_t) -> caf::result<slave_ticket> {
          promise_ = make_response_promise<slave_ticket>();
          return promise_;
        },
        [this](go_atom) {
          promise_.deliver(slave_ticket{
              {layer_hash("bn1"), 1, 1, 1}, std::chrono::hours{1}, survivors_});
        },
        [](run_relay_atom, const round_tag&, const relay_parts&) {
          return block{7};
        },
        [](round_failed_atom, const round_tag&, const caf::error&) {},
    };
  }

private:
  bool survivors_;
  caf::typed_response_promise<slave_ticket> promise_;
};

/// Returns when `relay` has handled what this thread has sent it.
void settle(tree_type& tree, const block_master& relay, std::int64_t id) {
  detail::request(tree.actor(id), relay, nr_slaves_atom_v)
      .receive([](std::uint64_t) {},
               [](const caf::error& x) { FAIL(describe(x)); });
}

/// Sends the first message of that replica, and waits for the answer for long,
/// but not for ever.
auto send_first(tree_type& tree, const block_master& to, std::int64_t id) {
  return tree_type::later(detail::request_within(
      tree.actor(id), std::chrono::seconds{30}, to, run_slave_atom_v,
      round_tag{layer_hash("bn1"), 1, 1, id}, block{1}));
}

} // namespace

TEST_CASE_FIXTURE(system_fixture,
                  "a relay that went on without a late replica does not wait "
                  "for ever for a parent that is silent") {
  auto parent = system.spawn(silent_parent);
  tree_type tree{system, caf::actor_cast<block_master>(parent)};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 2}, merge_blocks);
  tree.enlist(relay, replica_range{1, 2});
  auto one = send_first(tree, relay, 1)();
  CHECK_MESSAGE(one.failed(errc::deadline_exceeded,
                           {"the relay of replicas 1 to 2 waited",
                            "for the answer of its parent"}),
                one.text());
}

TEST_CASE_FIXTURE(system_fixture, "what becomes of a replica that dies while "
                                  "its relay registers is the master's policy, "
                                  "not that of the relay's node") {
  for (bool survivors : {false, true}) {
    auto parent = system.spawn<hesitant_parent>(survivors);
    tree_type tree{system, caf::actor_cast<block_master>(parent)};
    auto relay = tree.add_relay(tree.master(), "bn1", {1, 2}, merge_blocks);
    std::ignore = register_slave(tree.actor(1), relay, 1);
    auto ticket = register_slave(tree.actor(2), relay, 2);
    settle(tree, relay, 2);
    tree.kill(1);
    settle(tree, relay, 2);
    detail::anon_send(parent, go_atom_v);
    std::move(ticket).receive([](const slave_ticket&) {},
                              [](const caf::error& x) { FAIL(describe(x)); });
    auto two = send_first(tree, relay, 2)();
    auto good = survivors ? two.value == block{7}
                          : two.failed(errc::participant_down, {"replica 1"});
    CHECK_MESSAGE(good, two.text());
  }
}

TEST_CASE_FIXTURE(system_fixture, "a replica that died while its relay "
                                  "registers is replaced before that has its "
                                  "answer") {
  auto parent = system.spawn<hesitant_parent>();
  tree_type tree{system, caf::actor_cast<block_master>(parent)};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 1}, merge_blocks);
  std::ignore = register_slave(tree.actor(1), relay, 1);
  settle(tree, relay, 1);
  tree.kill(1);
  settle(tree, relay, 1);
  auto ticket = register_slave(tree.actor(1), relay, 1);
  settle(tree, relay, 1);
  detail::anon_send(parent, go_atom_v);
  std::move(ticket).receive(
      [](const slave_ticket& x) { CHECK(x.first.generation == 2); },
      [](const caf::error& x) { FAIL(describe(x)); });
}

TEST_CASE_FIXTURE(system_fixture, "a message before its ticket is refused, and "
                                  "the replica takes part when it has one") {
  auto parent = system.spawn<hesitant_parent>();
  tree_type tree{system, caf::actor_cast<block_master>(parent)};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 1}, merge_blocks);
  auto& self = tree.actor(1);
  auto ticket = register_slave(self, relay, 1);
  auto early = send_first(tree, relay, 1)();
  CHECK_MESSAGE(early.failed(errc::unregistered,
                             {"replica 1 sent a message before it had its "
                              "ticket"}),
                early.text());
  detail::anon_send(parent, go_atom_v);
  std::move(ticket).receive([](const slave_ticket&) {},
                            [](const caf::error& x) { FAIL(describe(x)); });
  auto first = send_first(tree, relay, 1)();
  CHECK_MESSAGE(first.value == block{7}, first.text());
}
