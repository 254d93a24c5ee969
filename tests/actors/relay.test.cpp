#include "tests/actors/tree_fixture.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

TEST_CASE_FIXTURE(system_fixture,
                  "a relay whose last slave leaves in good order between two "
                  "rounds counts no failure, with survivors") {
  auto master = spawn_sync_master<block, block>(
      system,
      {.layer = "bn1", .policy = failure_policy::continue_with_survivors},
      sum_of_blocks());
  auto relay = spawn_sync_relay<block, block>(system, master, "bn1", {1, 1},
                                              merge_blocks);
  REQUIRE(register_slave_thread<block, block>(system, relay, 1));
  // Its pipe has gone. The relay, and then the master, hear of it.
  caf::scoped_actor self{system};
  sync_metrics counted;
  auto count = [&](const block_master& x, std::uint64_t participants) {
    do
      read_metrics(self, x).receive(
          [&](sync_metrics& y) { counted = std::move(y); },
          [](const caf::error& e) { FAIL(describe(e)); });
    while (counted.participants != participants);
  };
  count(relay, 0);
  CHECK(counted.failures.empty());
  count(master, 1);
  CHECK(counted.failures
        == std::vector{failure_count{errc::participant_down, 1}});
  caf::anon_send_exit(relay, caf::exit_reason::user_shutdown);
}

TEST_CASE_FIXTURE(tree_fixture, "behind relays the reply has the bits of the "
                                "flat master's") {
  tree_type flat{system, spawn_sync_master<block, block>(system, options,
                                                         sum_of_blocks())};
  flat.enlist(flat.master(), replica_range{1, replicas - 1});
  enlist_all();
  for (int round = 0; round < 5; ++round) {
    auto message = [round](std::int64_t i) { return block_of(i, round); };
    auto one = flat.run(replicas, message);
    auto many = run(round);
    for (std::int64_t i = 0; i < replicas; ++i) {
      auto at = static_cast<std::size_t>(i);
      REQUIRE(one[at].value);
      CHECK(many[at].value == one[at].value);
      CHECK(many[at].value == expected(round));
    }
  }
}

TEST_CASE("relays are planned above the fan-in only, and cover everybody but "
          "the owner once a level") {
  CHECK(plan_relays(16, 16).empty());
  // No level more than is needed.
  CHECK(plan_relays(16, 4).size() == 4);
  CHECK(plan_relays(64, 4).size() == 20);
  CHECK(plan_relays(8, 2).size() == 6);
  CHECK(plan_relays(1, 2).empty());
  for (std::int64_t fan_in : {2, 3, 5, 16})
    for (std::int64_t replicas : {3, 17, 64, 100, 257, 1000}) {
      auto plan = plan_relays(replicas, fan_in);
      std::vector<std::int64_t> children(plan.size() + 1);
      std::vector<std::int64_t> covered(std::size_t(replicas), 0);
      for (std::size_t i = 0; i < plan.size(); ++i) {
        auto [first, count] = plan[i].range;
        auto parent = plan[i].parent;
        ++children[parent ? *parent + 1 : 0];
        if (parent) {
          REQUIRE(*parent < i);
          auto above = plan[*parent].range;
          CHECK(above.first <= first);
          CHECK(first + count <= above.first + above.count);
        }
        auto leaf = std::none_of(plan.begin(), plan.end(),
                                 [&](const auto& x) { return x.parent == i; });
        for (auto j = first; leaf && j < first + count; ++j)
          ++covered[std::size_t(j)];
        if (leaf)
          CHECK(count <= fan_in);
      }
      for (auto n : children)
        CHECK(n <= fan_in);
      for (std::size_t j = 0; j < covered.size() && replicas > fan_in; ++j)
        CHECK(covered[j] == (j == 0 ? 0 : 1));
    }
  CHECK_THROWS_AS(std::ignore = plan_relays(0, 16), error);
  CHECK_THROWS_AS(std::ignore = plan_relays(8, 1), error);
}

TEST_CASE_FIXTURE(system_fixture, "above the fan-in, replicas of one process "
                                  "stand behind relays, with the same bits") {
  tree_type tree{system, spawn_sync_master<block, block>(
                             system, {.layer = "bn1"}, sum_of_blocks())};
  sync_relays<block, block> relays{
      system, tree.master(), {.layer = "bn1", .fan_in = 3}, 20, merge_blocks};
  CHECK(relays.size() > 7);
  for (std::int64_t i = 1; i < 20; ++i)
    tree.enlist(relays.at(i), replica_range{i, 1});
  auto seen = tree.run(20, [](std::int64_t i) { return block_of(i); });
  parts all;
  for (std::int64_t i = 0; i < 20; ++i)
    all.push_back({i, block_of(i)});
  auto sum = merge_blocks(all);
  for (auto& x : seen)
    CHECK(x.value == sum);
}

// -- failures -----------------------------------------------------------------

TEST_CASE_FIXTURE(tree_fixture, "a replica that dies behind a relay ends the "
                                "round for the whole tree, by its name") {
  fails(6, [&] { tree.kill(6); }, errc::participant_down,
        {"layer bn1, round 2", "replica 6 is down"});
}

TEST_CASE_FIXTURE(tree_fixture, "a replica at the master that dies ends the "
                                "round behind the relays too") {
  fails(2, [&] { tree.kill(2); }, errc::participant_down,
        {"layer bn1, round 2", "replica 2 is down"});
}

TEST_CASE_FIXTURE(tree_fixture,
                  "a replica that gives up behind a relay is named") {
  fails(11, [&] { tree.pipe(11).give_up(tree.actor(11), "out of memory"); },
        errc::participant_failed,
        {"layer bn1, round 2", "replica 11 gave up: out of memory"});
}

TEST_CASE_FIXTURE(tree_fixture, "two messages of a replica behind a relay end "
                                "the round, by its name") {
  std::function<outcome<block>()> second;
  fails(7,
        [&] {
          // Replica 5 sends again while the others wait for 7.
          caf::scoped_actor& self = tree.actor(5);
          second = tree_type::later(detail::request(
              self, inner, run_slave_atom_v,
              round_tag{layer_hash("bn1"), 1, 2, 5}, block_of(5)));
        },
        errc::duplicate_message, {"layer bn1, round 2", "replica 5 sent two"});
  CHECK(second().failed(errc::duplicate_message, {"replica 5"}));
}

TEST_CASE_FIXTURE(impatient_fixture, "a replica behind two relays that does "
                                     "not come in time is named by itself") {
  fails(8, [] {}, errc::deadline_exceeded,
        {"layer bn1, round 2",
         "for replica 8; of replicas 5 to 8 have replicas 5, 6, 7"});
}

TEST_CASE_FIXTURE(impatient_fixture, "a whole relay of replicas that do not "
                                     "come in time is named by its range") {
  enlist_all();
  std::vector<std::function<outcome<block>()>> waiting;
  for (std::int64_t i = 0; i < 3; ++i)
    waiting.push_back(tree.send(i, block_of(i)));
  for (auto& x : waiting)
    CHECK(
        x().failed(errc::deadline_exceeded,
                   {"for replicas 3 to 12; of replicas 3 to 12 have nobody"}));
}

TEST_CASE_FIXTURE(impatient_fixture,
                  "a replica that never registered with its relay is named") {
  tree.enlist(tree.master(), replica_range{1, 2});
  tree.enlist(outer, replica_range{3, 2});
  tree.enlist(inner, replica_range{5, 4});
  tree.enlist(outer, replica_range{9, 3}); // not 12
  for (auto& x : tree.run(12, [](std::int64_t i) { return block_of(i); }))
    CHECK(x.failed(errc::deadline_exceeded,
                   {"for replica 12; of replicas 3 to 12 have"}));
}

TEST_CASE_FIXTURE(tree_fixture, "a relay that dies is named with its replicas; "
                                "another one takes its place") {
  enlist_all();
  std::vector<std::function<outcome<block>()>> waiting;
  for (std::int64_t i = 0; i < 9; ++i)
    waiting.push_back(tree.send(i, block_of(i)));
  caf::anon_send_exit(inner, caf::exit_reason::kill);
  for (std::int64_t i = 0; i < 5; ++i) {
    auto x = waiting[std::size_t(i)]();
    CHECK_MESSAGE(x.failed(errc::participant_down,
                           {"layer bn1, round 1",
                            "the relay of replicas 5 to 8 is down (kill)"}),
                  x.text());
  }
  for (std::int64_t i = 5; i < 9; ++i)
    CHECK(waiting[std::size_t(i)]().failed(errc::master_down));
  inner = tree.add_relay(outer, "bn1", {5, 4}, merge_blocks);
  enlist_all();
  for (auto& x : run())
    CHECK(x.value == expected());
}

TEST_CASE_FIXTURE(tree_fixture, "replicas behind relays learn that the master "
                                "has gone") {
  enlist_all();
  std::vector<std::function<outcome<block>()>> waiting;
  for (std::int64_t i = 5; i < 9; ++i)
    waiting.push_back(tree.send(i, block_of(i)));
  caf::anon_send_exit(tree.master(), caf::exit_reason::kill);
  for (auto& x : waiting)
    CHECK(x().failed(errc::master_down, {"layer bn1, round 1"}));
  CHECK(tree.enlist(inner, 5).failed(errc::master_down));
}

TEST_CASE_FIXTURE(survivors_fixture, "a round goes on without a replica that "
                                     "died behind a relay, exactly") {
  enlist_all();
  std::vector<std::function<outcome<block>()>> waiting;
  for (std::int64_t i = 0; i < replicas; ++i)
    if (i != 6)
      waiting.push_back(tree.send(i, block_of(i)));
  tree.kill(6);
  parts rest;
  for (std::int64_t i = 0; i < replicas; ++i)
    if (i != 6)
      rest.push_back({i, block_of(i)});
  auto sum = merge_blocks(rest);
  for (auto& x : waiting)
    CHECK(x().value == sum);
}

TEST_CASE_FIXTURE(survivors_fixture, "a round goes on without a relay whose "
                                     "replicas have all died") {
  enlist_all();
  std::vector<std::function<outcome<block>()>> waiting;
  parts rest;
  for (std::int64_t i = 0; i < replicas; ++i)
    if (i < 5 || i >= 9) {
      waiting.push_back(tree.send(i, block_of(i)));
      rest.push_back({i, block_of(i)});
    }
  for (std::int64_t i = 5; i < 9; ++i)
    tree.kill(i);
  auto sum = merge_blocks(rest);
  for (auto& x : waiting)
    CHECK(x().value == sum);
}

TEST_CASE_FIXTURE(tree_fixture, "a replica that registers after a round begins "
                                "a new generation for the whole tree") {
  enlist_all();
  for (auto& x : run())
    REQUIRE(x.value);
  auto waiting = tree.send(10, block_of(10));
  tree.enlist(inner, replica_range{5, 1});
  CHECK(waiting().failed(errc::stale));
  enlist_all_but_five();
  for (auto& x : run())
    CHECK(x.value == expected());
}

TEST_CASE_FIXTURE(system_fixture,
                  "a replica that comes back while its relay waits for the "
                  "others takes part from the next round on") {
  tree_type tree{system,
                 spawn_sync_master<block, block>(
                     system,
                     {.layer = "bn1",
                      .deadline = std::chrono::seconds{20},
                      .policy = failure_policy::continue_with_survivors},
                     sum_of_blocks())};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 3}, merge_blocks);
  tree.enlist(relay, replica_range{1, 3});
  tree.kill(3);
  std::vector<std::function<outcome<block>()>> waiting;
  for (std::int64_t i = 1; i < 3; ++i)
    waiting.push_back(tree.send(i, block{1}));
  // Until the relay knows that the old one has died.
  while (!tree.enlist(relay, 3).value)
    ;
  waiting.push_back(tree.send(0, block{1}));
  for (auto& x : waiting)
    CHECK(x().value == block{3});
  for (auto& x : tree.run(4, [](std::int64_t) { return block{1}; }))
    CHECK_MESSAGE(x.value == block{4}, x.text());
}

TEST_CASE("in a text eight replicas in a row are drawn together, and seven are "
          "not") {
  detail::roster all;
  for (std::int64_t id = 1; id <= 6; ++id)
    REQUIRE(all.add(detail::participant::slave(id), ""));
  CHECK(all.list() == "replicas 0, 1, 2, 3, 4, 5, 6");
  REQUIRE(all.add(detail::participant::slave(7), ""));
  CHECK(all.list() == "replicas 0-7");
}

TEST_CASE("a relay waits for a replica that never came, whoever else has died "
          "and come back") {
  detail::roster all{1, 3};
  REQUIRE(all.add(detail::participant::slave(1), ""));
  all.erase(0);
  CHECK_FALSE(all.is_full());
  REQUIRE(all.add(detail::participant::slave(1), ""));
  REQUIRE(all.add(detail::participant::slave(2), ""));
  CHECK_FALSE(all.is_full());
  all.erase(1);
  CHECK_FALSE(all.is_full());
  REQUIRE(all.add(detail::participant::slave(3), ""));
  CHECK(all.is_full());
  // Of a relay that died, some come back.
  detail::roster wide{1, 8};
  REQUIRE(wide.add(detail::participant::relay(1, 4), ""));
  wide.erase(0);
  REQUIRE(wide.add(detail::participant::relay(2, 2), ""));
  REQUIRE(wide.add(detail::participant::relay(5, 3), ""));
  CHECK_FALSE(wide.is_full());
  REQUIRE(wide.add(detail::participant::slave(8), ""));
  CHECK(wide.is_full());
}

TEST_CASE("whatever the deadline, a relay that is complete hears from its "
          "parent who was late before it is out of patience") {
  using namespace std::chrono_literals;
  auto now = caf::actor_clock::time_point{} + 1h;
  for (caf::timespan deadline :
       {caf::timespan{1ms}, caf::timespan{300ms}, caf::timespan{8s},
        caf::timespan{16s}, caf::timespan{1h}, max_deadline}) {
    auto due = now + deadline;
    CHECK(detail::needs_timer(std::nullopt, due, deadline));
    CHECK_FALSE(detail::needs_timer(due - 1h, due, deadline));
    CHECK_FALSE(detail::needs_timer(due, due, deadline));
    // Bisects for the latest timer that is good enough.
    caf::timespan late{0};
    for (auto step = deadline; step.count() > 0; step /= 2)
      if (!detail::needs_timer(due + late + step, due, deadline))
        late += step;
    CHECK(late.count() > 0);
    CHECK(deadline + late + detail::grace_of(deadline)
          < detail::relay_patience(deadline));
  }
}

TEST_CASE_FIXTURE(system_fixture, "a master and relays whose handles all go at "
                                  "once end, and their replicas hear of it") {
  for (int i = 0; i < 20; ++i) {
    std::vector<slave_pipe<block, block>> pipes;
    {
      sync_options options{.layer = "bn1", .fan_in = 2};
      auto master =
          spawn_sync_master<block, block>(system, options, sum_of_blocks());
      sync_relays<block, block> relays{system, master, options, 4,
                                       merge_blocks};
      for (std::int64_t k = 1; k < 4; ++k)
        pipes.push_back(std::move(
            *register_slave_thread<block, block>(system, relays.at(k), k)));
      pipes.clear();
    }
  }
}

namespace {

/// Tells an actor when it goes.
class last_word {
public:
  explicit last_word(caf::actor to) : to_{std::move(to)} {}

  last_word(const last_word&) = delete;
  last_word& operator=(const last_word&) = delete;

  ~last_word() {
    detail::anon_send(to_, go_atom_v);
  }

private:
  caf::actor to_;
};

} // namespace

TEST_CASE_FIXTURE(system_fixture,
                  "a relay that has registered ends with its last handle") {
  auto master = spawn_sync_master<block, block>(system, {.layer = "bn1"},
                                                sum_of_blocks());
  caf::scoped_actor self{system};
  {
    auto kept = std::make_shared<last_word>(caf::actor_cast<caf::actor>(self));
    auto relay = spawn_sync_relay<block, block>(
        system, master, "bn1", {3, 2},
        [kept](auto parts) { return merge_blocks(parts); });
    register_slave(self, relay, 3)
        .receive([](const slave_ticket&) {},
                 [](const caf::error& x) { FAIL(describe(x)); });
  }
  self->receive([](go_atom) {}, caf::after(std::chrono::seconds{20}) >>
                                    [] { FAIL("the relay is still there"); });
}

// -- between nodes ------------------------------------------------------------

TEST_CASE_FIXTURE(tree_fixture, "a relay on another node gives the same bits, "
                                "and its loss is named there") {
  auto port = system.middleman().publish(tree.master(), 0, "127.0.0.1");
  REQUIRE(port);
  tree.enlist(tree.master(), replica_range{1, 2});
  std::function<outcome<block>()> waiting;
  {
    config other_cfg;
    caf::actor_system other{other_cfg};
    auto remote =
        other.middleman().remote_actor<block_master>("127.0.0.1", *port);
    REQUIRE(remote);
    tree_type there{other, *remote};
    auto relay = there.add_relay(*remote, "bn1", {3, 10}, merge_blocks);
    there.enlist(relay, replica_range{3, 10});
    for (int round = 0; round < 20; ++round) {
      std::vector<std::function<outcome<block>()>> all;
      for (std::int64_t i = 0; i < replicas; ++i)
        all.push_back((i < 3 ? tree : there).send(i, block_of(i, round)));
      for (auto& x : all)
        CHECK(x().value == expected(round));
    }
    waiting = tree.send(0, block_of(0));
    // Leaves the master to the first node.
    caf::anon_send_exit(relay, caf::exit_reason::kill);
    CHECK(waiting().failed(errc::participant_down,
                           {"the relay of replicas 3 to 12 is down"}));
  }
}
