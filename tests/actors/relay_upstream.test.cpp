#include "tests/actors/fake_relay.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

// Between a relay and its parent.

namespace {

/// A parent that answers registrations when it is told to go, and puts into
/// `told` that its relay has failed.
caf::behavior
hesitant_parent(caf::event_based_actor* self,
                const std::shared_ptr<future_result<round_tag>>& told) {
  auto promise = std::make_shared<caf::typed_response_promise<slave_ticket>>();
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

/// What a parent that does as it is told is told beforehand.
struct orders {
  /// It answers registrations when it is told to, not at once.
  bool hesitates = false;
  bool survivors = false;
};

/// A parent that answers messages when it is told to, and asks its relay whom
/// it waits for. It counts the failures that it is told of.
class obedient_parent : public caf::event_based_actor {
public:
  obedient_parent(caf::actor_config& config, orders given)
      : caf::event_based_actor{config},
        orders_{given} {}

  caf::behavior make_behavior() override {
    return {
        [this](register_relay_atom, std::int64_t, std::int64_t) {
          return take_registration();
        },
        [this](go_atom) { answer_registrations(); },
        [this](run_relay_atom, const round_tag&,
               const relay_parts&) -> caf::result<block> {
          replies_.push_back(make_response_promise<block>());
          return replies_.back();
        },
        [this](std::uint64_t message, double value) {
          replies_.at(message).deliver(block{value});
        },
        [this](std::uint64_t message, const std::string& why) {
          replies_.at(message).deliver(
              make_error(errc::participant_failed, why));
        },
        [this](late_atom, const caf::actor& relay, const round_tag& tag) {
          detail::send(this, caf::actor_cast<block_master>(relay),
                       report_late_atom_v, tag, caf::timespan{1h});
        },
        [this](round_failed_atom, const round_tag&, const caf::error&) {
          ++failures_;
        },
        [this](nr_slaves_atom) { return failures_; },
    };
  }

  /// Whom it owes an answer has a handle of it: neither would be deleted.
  void on_exit() override {
    tickets_.clear();
    replies_.clear();
  }

private:
  caf::result<slave_ticket> take_registration() {
    tickets_.push_back(make_response_promise<slave_ticket>());
    auto answer = tickets_.back();
    if (!orders_.hesitates)
      answer_registrations();
    return answer;
  }

  void answer_registrations() {
    for (auto& ticket : tickets_)
      ticket.deliver(slave_ticket{
          {layer_hash("bn1"), generation_++, 1, 1}, 1h, orders_.survivors});
    tickets_.clear();
  }

  orders orders_;
  std::uint64_t generation_ = 1;
  std::vector<caf::typed_response_promise<slave_ticket>> tickets_;
  std::vector<caf::typed_response_promise<block>> replies_;
  std::uint64_t failures_ = 0;
};

/// A relay of replicas 1 and 2 below such a parent.
struct obedient_tree {
  caf::actor parent;
  tree_type tree;
  block_master relay =
      tree.add_relay(tree.master(), "bn1", {1, 2}, merge_blocks);

  explicit obedient_tree(caf::actor_system& system, orders given = {})
      : parent{system.spawn<obedient_parent>(given)},
        tree{system, caf::actor_cast<block_master>(parent)} {}

  /// Returns when relay and parent have handled what was sent to either, and
  /// what that made them send.
  void settle() {
    std::ignore = failures();
    test::settle(tree, relay);
    std::ignore = failures();
  }

  /// How many failures the parent was told of.
  std::uint64_t failures() {
    std::uint64_t result = 0;
    detail::request(tree.actor(0), tree.master(), nr_slaves_atom_v)
        .receive([&](std::uint64_t x) { result = x; },
                 [](const caf::error& x) { FAIL(describe(x)); });
    return result;
  }

  void enlist_both() {
    tree.enlist(relay, replica_range{1, 2});
  }

  /// The answer to this registration comes later.
  auto apply(std::int64_t identifier) {
    auto answer = register_slave(tree.actor(identifier), relay, identifier);
    settle();
    return answer;
  }

  /// A message that the relay has when this returns.
  auto send(std::int64_t identifier) {
    auto result = tree.send(identifier, block{1});
    settle();
    return result;
  }

  /// Has the parent do something.
  template <class... Ts>
  void order(const Ts&... xs) {
    detail::anon_send(parent, xs...);
    settle();
  }

  /// Has the parent ask the relay whom it waits for.
  void have_asked(const round_tag& tag) {
    order(late_atom_v, caf::actor_cast<caf::actor>(relay), tag);
  }
};

} // namespace

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

TEST_CASE_FIXTURE(system_fixture,
                  "a parent learns of a round that failed while "
                  "the parent was asked") {
  obedient_tree x{system, {.hesitates = true}};
  auto ticket = x.apply(1);
  detail::send(x.tree.actor(1), x.relay, give_up_atom_v, tag_of(1),
               std::string{"no data"});
  x.settle();
  x.order(go_atom_v);
  std::move(ticket).receive([](const slave_ticket&) {},
                            [](const caf::error&) {});
  CHECK(x.failures() == 1);
}

TEST_CASE_FIXTURE(system_fixture, "a ticket is of the generation in which it "
                                  "was asked for, or there is none") {
  obedient_tree x{system, {.hesitates = true}};
  auto one = x.apply(1);
  std::ignore = x.apply(2);
  x.tree.kill(2);
  x.settle();
  auto again = x.apply(2);
  x.order(go_atom_v);
  std::move(again).receive(
      [](const slave_ticket& ticket) { CHECK(ticket.first.generation == 2); },
      [](const caf::error& e) { FAIL(describe(e)); });
  std::move(one).receive([](const slave_ticket&) { FAIL_CHECK("a ticket"); },
                         [](const caf::error& e) { CHECK(e == errc::stale); });
}

TEST_CASE_FIXTURE(system_fixture, "what a parent answers to a generation that "
                                  "is over, a value or an error, is not for "
                                  "the next one") {
  for (bool fails : {false, true}) {
    obedient_tree x{system};
    x.enlist_both();
    auto one = x.send(1);
    auto two = x.send(2);
    x.tree.kill(2);
    x.tree.enlist(x.relay, replica_range{2, 1});
    CHECK(one().failed(errc::participant_down));
    x.tree.enlist(x.relay, replica_range{1, 1});
    one = x.send(1);
    if (fails)
      x.order(std::uint64_t{0}, std::string{"too late"});
    else
      x.order(std::uint64_t{0}, 10.0);
    two = x.send(2);
    x.order(std::uint64_t{1}, 11.0);
    for (auto* wait : {&one, &two}) {
      auto got = (*wait)();
      CHECK_MESSAGE(got.value == block{11}, got.text());
    }
  }
}

TEST_CASE_FIXTURE(system_fixture, "with survivors, a parent's question of an "
                                  "earlier round, or of another generation, "
                                  "expels nobody") {
  obedient_tree x{system, {.survivors = true}};
  x.enlist_both();
  for (std::uint64_t round = 0; round < 2; ++round) {
    auto one = x.send(1);
    auto asked = tag_of(1);
    asked.generation = round == 0 ? 2 : 1;
    x.have_asked(asked);
    auto two = x.send(2);
    x.order(round, 10.0);
    for (auto* wait : {&one, &two}) {
      auto got = (*wait)();
      CHECK_MESSAGE(got.value == block{10}, got.text());
    }
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a relay that is asked whom it waits for when "
                  "its own message is on its way says "
                  "nothing") {
  obedient_tree x{system};
  x.enlist_both();
  auto one = x.send(1);
  auto two = x.send(2);
  x.have_asked(tag_of(1));
  CHECK(x.failures() == 0);
  x.order(std::uint64_t{0}, 10.0);
  for (auto* wait : {&one, &two}) {
    auto got = (*wait)();
    CHECK_MESSAGE(got.value == block{10}, got.text());
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "of a replica that dies when its relay has sent "
                  "for all, the parent is told, once: the "
                  "others have what it answers") {
  for (bool fails : {false, true}) {
    obedient_tree x{system};
    x.enlist_both();
    auto one = x.send(1);
    auto two = x.send(2);
    x.tree.pipe(2).give_up(x.tree.actor(2), "no data");
    x.tree.kill(2);
    x.settle();
    CHECK(x.failures() == 1);
    if (fails)
      x.order(std::uint64_t{0}, std::string{"no data, says the parent"});
    else
      x.order(std::uint64_t{0}, 10.0);
    auto got = one();
    CHECK_MESSAGE((fails ? got.failed(errc::participant_failed, {"the parent"})
                         : got.value == block{10}),
                  got.text());
  }
}

TEST_CASE_FIXTURE(system_fixture, "who replaces a replica that has died when "
                                  "its relay has sent for all need not wait "
                                  "for what the parent answers") {
  obedient_tree x{system};
  x.enlist_both();
  auto one = x.send(1);
  auto two = x.send(2);
  x.tree.kill(2);
  auto again = x.tree.enlist(x.relay, 2);
  CHECK_MESSAGE(again.value, again.text());
  CHECK(one().failed(errc::participant_down, {"replica 2 is down"}));
}

TEST_CASE_FIXTURE(system_fixture, "a relay counts that somebody above it left "
                                  "in good order once somebody behind it is "
                                  "told") {
  relay_master tree{system};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 1}, merge_blocks);
  tree.enlist(relay, replica_range{1, 1});
  tree.enlist(tree.master(), replica_range{2, 1});
  tree.kill(2);
  settle(tree, tree.master());
  CHECK(metrics_of(tree, relay).failures.empty());
  CHECK(tree.send(1, block{1})().failed(errc::participant_down));
  CHECK(metrics_of(tree, relay).failed(errc::participant_down) == 1);
}
