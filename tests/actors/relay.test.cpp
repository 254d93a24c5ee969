#include "tests/actors/relay_tree.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

using tree_type = replica_tree<block, block>;

/// Replica 0 owns the master, 1 and 2 are its slaves, a relay stands for 3 to
/// 12, of which 5 to 8 stand behind a relay of their own.
struct tree_fixture : system_fixture {
  tree_fixture() = default;

  explicit tree_fixture(sync_options options) : options{std::move(options)} {}

  sync_options options{.layer = "bn1", .deadline = std::chrono::seconds{20}};
  tree_type tree{system, spawn_sync_master<block, block>(system, options,
                                                         sum_of_blocks())};
  block_master outer =
      tree.add_relay(tree.master(), "bn1", {3, 10}, merge_blocks);
  block_master inner = tree.add_relay(outer, "bn1", {5, 4}, merge_blocks);
  static constexpr std::int64_t replicas = 13;

  const block_master& home(std::int64_t identifier) {
    if (identifier < 3)
      return tree.master();
    return identifier >= 5 && identifier < 9 ? inner : outer;
  }

  void enlist_all() {
    for (std::int64_t i = 1; i < replicas; ++i)
      tree.enlist(home(i), replica_range{i, 1});
  }

  void enlist_all_but_five() {
    for (std::int64_t i = 1; i < replicas; ++i)
      if (i != 5)
        tree.enlist(home(i), replica_range{i, 1});
  }

  std::vector<outcome<block>> run(int round = 0) {
    return tree.run(replicas,
                    [round](std::int64_t i) { return block_of(i, round); });
  }

  /// All replicas but `missing` send, then `fault` happens; checks that all of
  /// them get the same error of that code, with the parts in its text.
  template <class Fault>
  void fails(std::int64_t missing, Fault fault, errc code,
             const std::vector<std::string>& parts) {
    enlist_all();
    for (auto& x : run())
      REQUIRE(x.value);
    std::vector<std::function<outcome<block>()>> waiting;
    for (std::int64_t i = 0; i < replicas; ++i)
      if (i != missing)
        waiting.push_back(tree.send(i, block_of(i)));
    fault();
    std::string text;
    for (auto& wait : waiting) {
      auto x = wait();
      CHECK_MESSAGE(x.failed(code, parts), x.text());
      CHECK((text.empty() || text == x.text()));
      text = x.text();
    }
    // They register again, and the same master and relays serve again.
    enlist_all();
    for (auto& x : run())
      CHECK(x.value == expected());
  }

  static block expected(int round = 0) {
    std::vector<identified<block>> all;
    for (std::int64_t i = 0; i < replicas; ++i)
      all.push_back({i, block_of(i, round)});
    return merge_blocks(all);
  }
};

struct impatient_fixture : tree_fixture {
  impatient_fixture()
      : tree_fixture{
          {.layer = "bn1", .deadline = std::chrono::milliseconds{300}}} {}
};

struct survivors_fixture : tree_fixture {
  survivors_fixture()
      : tree_fixture{{.layer = "bn1",
                      .deadline = std::chrono::seconds{20},
                      .policy = failure_policy::continue_with_survivors}} {}
};

} // namespace

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

namespace {

using parts = std::vector<identified<block>>;

/// What a relay of the replicas `first` to `first + count - 1` sends, some of
/// whom stand behind relays of their own: random ranges.
parts relayed(std::mt19937& random, std::int64_t first, std::int64_t count,
              const std::function<bool(std::int64_t)>& present) {
  parts got;
  for (auto at = first; at < first + count;) {
    auto n = std::min(1 + std::int64_t(random()) % count, first + count - at);
    if (n == count || random() % 3 == 0) {
      for (auto i = at; i < at + n; ++i)
        if (present(i))
          got.push_back({i, block_of(i)});
    } else {
      auto below = relayed(random, at, n, present);
      got.insert(got.end(), below.begin(), below.end());
    }
    at += n;
  }
  auto nodes = detail::tree_blocks(first, count);
  CHECK(double(nodes.size()) <= 2 * std::log2(double(count)) + 2);
  nodes.push_back(first + count);
  parts result;
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
    parts some;
    for (const auto& x : got)
      if (x.identifier >= nodes[i] && x.identifier < nodes[i + 1])
        some.push_back(x);
    if (!some.empty())
      result.push_back({nodes[i], merge_blocks(some)});
  }
  return result;
}

} // namespace

TEST_CASE("any grouping of neighbours into relays, of any depth and with "
          "replicas missing, adds with the same bits") {
  std::mt19937 random{3};
  for (int trial = 0; trial < 500; ++trial) {
    auto count = 1 + std::int64_t(random() % 70);
    auto seed = random();
    auto present = [seed](std::int64_t i) {
      return i == 0 || (seed >> (i % 32) & 7) != 0;
    };
    parts all;
    for (std::int64_t i = 0; i < count; ++i)
      if (present(i))
        all.push_back({i, block_of(i)});
    auto tree = relayed(random, 0, count, present);
    CHECK(merge_blocks(tree) == merge_blocks(all));
  }
}

TEST_CASE("a sum along the tree passes by empty arrays and refuses others of "
          "another size") {
  block two{1, 2};
  std::vector<double> sum(2);
  add_tree<double>({{0, {}}, {1, two.view()}, {4, two.view()}}, sum);
  CHECK(sum == std::vector<double>{2, 4});
  add_tree<double>({{0, {}}}, sum);
  CHECK(sum == std::vector<double>{0, 0});
  block three{1, 2, 3};
  CHECK_THROWS_WITH_AS(
      add_tree<double>({{1, two.view()}, {4, three.view()}}, sum),
      "replica 4 sent 3 elements, expected 2", error);
}

TEST_CASE("relays are planned above the fan-in only, and cover everybody but "
          "the owner once a level") {
  CHECK(plan_relays(16, 16).empty());
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

// -- refusals -----------------------------------------------------------------

TEST_CASE_FIXTURE(tree_fixture, "a relay refuses replicas outside of its range "
                                "and ranges that overlap") {
  CHECK(tree.enlist(inner, 9).failed(
      errc::invalid_identifier,
      {"this relay stands for replicas 5 to 8, not for replica 9"}));
  tree.enlist(inner, replica_range{5, 1});
  CHECK(tree.enlist(outer, 6).failed(
      errc::duplicate_identifier,
      {"replica 6 overlaps the relay of replicas 5 to 8"}));
  auto rival = tree.add_relay(tree.master(), "bn1", {12, 4}, merge_blocks);
  CHECK(tree.enlist(rival, 13).failed(errc::duplicate_identifier,
                                      {"replicas 12 to 15", "3 to 12"}));
}

TEST_CASE_FIXTURE(tree_fixture, "a relay without a parent is refused, and "
                                "identifiers beyond the last with the reason") {
  CHECK_THROWS_WITH_AS(tree.add_relay({}, "bn1", {20, 2}, merge_blocks),
                       doctest::Contains("the parent's handle is null"), error);
  constexpr auto last = std::numeric_limits<std::int64_t>::max();
  for (auto range : {replica_range{last, 1}, replica_range{last - 1, 2}})
    CHECK_THROWS_WITH_AS(
        tree.add_relay(tree.master(), "bn1", range, merge_blocks),
        doctest::Contains("up to 2^63 - 2"), error);
  CHECK(tree.enlist(tree.master(), last)
            .failed(errc::invalid_identifier, {"up to 2^63 - 2"}));
  CHECK(tree.enlist(tree.master(), last - 1).value);
}

TEST_CASE_FIXTURE(tree_fixture, "a registration that a relay refuses after a "
                                "round disturbs nobody") {
  enlist_all();
  for (int round = 0; round < 3; ++round) {
    for (auto& x : run(round))
      CHECK_MESSAGE(x.value == expected(round), x.text());
    CHECK(tree.enlist(inner, 9).failed(errc::invalid_identifier));
    CHECK(tree.enlist(outer, -7).failed(errc::invalid_identifier));
  }
}

TEST_CASE_FIXTURE(tree_fixture, "a relay refuses another layer's parent, and "
                                "the master's own message") {
  auto astray = tree.add_relay(tree.master(), "bn2", {20, 2}, merge_blocks);
  CHECK(tree.enlist(astray, 20).failed(errc::wrong_layer, {"layer bn2"}));
  caf::scoped_actor self{system};
  auto lead = tree_type::later(run_master(self, inner, block{1}));
  CHECK(lead().failed(errc::invalid_argument, {"a relay has no owner"}));
  CHECK_THROWS_AS(tree.add_relay(tree.master(), "bn1", {0, 2}, merge_blocks),
                  error);
  CHECK_THROWS_AS(tree.add_relay(tree.master(), "bn1", {1, 0}, merge_blocks),
                  error);
  CHECK_THROWS_AS(tree.add_relay(tree.master(), "bn1", {1, 1}, nullptr), error);
}

TEST_CASE_FIXTURE(system_fixture, "a master whose callback cannot merge in "
                                  "parts refuses relays in words") {
  tree_type tree{
      system, spawn_sync_master<block, block>(
                  system, {.layer = "bn1"}, [](std::span<identified<block>>) {
                    return std::vector<identified<block>>{};
                  })};
  auto relay = tree.add_relay(tree.master(), "bn1", {1, 2}, merge_blocks);
  CHECK(tree.enlist(relay, 1).failed(errc::invalid_argument,
                                     {"layer bn1", "sync_reduction"}));
}

TEST_CASE_FIXTURE(system_fixture, "parts that are not what they say end the "
                                  "round as malformed") {
  struct lie {
    std::vector<std::int64_t> first;
    caf::message values;
  };
  std::vector<lie> lies{
      {{}, caf::message{}},
      {{2}, caf::make_message(block{1}, block{2})},
      {{3, 2}, caf::make_message(block{1}, block{2})},
      {{2, 2}, caf::make_message(block{1}, block{2})},
      {{1}, caf::make_message(block{1})},
      {{2, 4, 6}, caf::make_message(block{1}, block{2}, block{3})},
      {{2}, caf::make_message(std::string{"a block"})},
  };
  for (auto& x : lies) {
    tree_type tree{system, spawn_sync_master<block, block>(
                               system, {.layer = "bn1"}, sum_of_blocks())};
    caf::scoped_actor stranger{system};
    outcome<slave_ticket> ticket;
    detail::request(stranger, tree.master(), register_relay_atom_v,
                    std::int64_t{2}, std::int64_t{4})
        .receive([&](slave_ticket& t) { ticket(t); },
                 [&](caf::error& e) { ticket(e); });
    auto owner = tree.send(0, block{1});
    auto answer = tree_type::later(detail::request(
        stranger, tree.master(), run_relay_atom_v, ticket.value.value().first,
        relay_parts{caf::timespan{-1}, x.first, x.values}));
    CHECK(answer().failed(errc::malformed_message,
                          {"layer bn1, round 1", "replicas 2 to 5"}));
    CHECK(owner().failed(errc::malformed_message));
  }
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
