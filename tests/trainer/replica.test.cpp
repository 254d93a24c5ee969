#include "trainer/run/replica.hpp"
#include "trainer/run/trainer.hpp"

#include "trainer/digits.hpp"
#include "trainer/scratch_folder.hpp"
#include "trainer/test_config.hpp"

#include "syncnorm/compat.hpp"
#include "syncnorm/network.hpp"

#include "trainer/run/error_text.hpp"
#include "trainer/run/gradient_exchange.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <utility>

using namespace syncnorm;
using namespace syncnorm::train;

namespace {

/// One replica, asked as another process could ask it.
struct asked_replica {
  caf::actor_system system;
  caf::scoped_actor self{system};
  settings options;
  replica_actor member;

  explicit asked_replica(norm_kind norm = norm_kind::sync,
                         caf::actor_system_config& config = configuration())
      : system{config} {
    options.model = model_kind::mlp;
    options.norm = norm;
    member = spawn_replicas(system, options, {device{}}, digits).at(0);
  }

  ~asked_replica() {
    caf::anon_send_exit(member, caf::exit_reason::user_shutdown);
  }

  /// Why it refuses; empty if it does not.
  template <class Result, class... Xs>
  std::string refusal(Xs... xs) {
    std::string why;
    auto on_error = [&](const caf::error& x) { why = train::text_of(x); };
    if constexpr (std::is_void_v<Result>)
      compat::request(self, member, std::move(xs)...).receive([] {}, on_error);
    else
      compat::request(self, member, std::move(xs)...)
          .receive([](const Result&) {}, on_error);
    return why;
  }

  template <class Result, class... Xs>
  Result answer(Xs... xs) {
    Result result{};
    compat::request(self, member, std::move(xs)...)
        .receive([&](const Result& x) { result = x; },
                 [](const caf::error& x) { FAIL(train::text_of(x)); });
    return result;
  }

  std::string step(std::uint64_t begin, std::uint64_t end) {
    return refusal<step_report>(step_atom_v, step_plan{0, 1, begin, end, 0.1});
  }

  std::string follow(const lineup& leader, std::uint64_t index,
                     std::uint64_t replicas) {
    return refusal<void>(follow_atom_v, leader, index, replicas);
  }
};

constexpr auto most = std::numeric_limits<std::uint64_t>::max();

} // namespace

TEST_CASE("a replica refuses samples that it does not have") {
  asked_replica one;
  REQUIRE(one.refusal<lineup>(lead_atom_v, std::uint64_t{1}).empty());
  CHECK(one.step(0, 1438)
        == "replica 0: expected a part of 1437 samples, found 0 to 1438");
  CHECK(contains(one.step(9, 8), "found 9 to 8"));
  CHECK(contains(one.step(most, 4), "expected a part of 1437 samples"));
  auto evaluate = [&](std::uint64_t begin, std::uint64_t end) {
    return one.refusal<evaluation>(evaluate_atom_v, begin, end);
  };
  CHECK(contains(evaluate(0, 361), "expected a part of 360 samples"));
  CHECK(contains(evaluate(most - 1, most), "expected a part of 360 samples"));
  CHECK(evaluate(359, 360).empty());
}

TEST_CASE("a replica refuses a step before it leads or follows") {
  asked_replica one;
  CHECK(contains(one.step(0, 64), "expected to lead or follow first"));
  REQUIRE(one.refusal<lineup>(lead_atom_v, std::uint64_t{1}).empty());
  CHECK(one.step(0, 64).empty());
}

TEST_CASE("a replica refuses the step that comes after one that failed") {
  asked_replica one;
  REQUIRE(one.refusal<lineup>(lead_atom_v, std::uint64_t{1}).empty());
  CHECK(one.step(0, 64).empty());
  CHECK_FALSE(one.step(0, 1438).empty());
  CHECK(contains(one.step(64, 128), "expected to lead or follow first"));
  REQUIRE(one.refusal<lineup>(lead_atom_v, std::uint64_t{1}).empty());
  CHECK(one.step(64, 128).empty());
}

TEST_CASE("a replica refuses a place that there is not") {
  asked_replica one;
  auto lead = [&](std::uint64_t replicas) {
    return one.refusal<lineup>(lead_atom_v, replicas);
  };
  CHECK(contains(lead(0), "found number 0 of 0"));
  CHECK(contains(lead(most), "expected a place among at most 1048576"));
  CHECK(contains(one.follow({}, 2, 2), "found number 2 of 2"));
  CHECK(contains(one.refusal<void>(settle_atom_v, most, std::uint64_t{4}),
                 "of 4"));
}

TEST_CASE("a replica refuses a state of another model by its own name, and is "
          "as it was") {
  asked_replica one;
  auto before = one.answer<std::uint64_t>(hash_atom_v);
  auto state = one.answer<model_state>(state_atom_v);
  CHECK(one.refusal<void>(assume_atom_v, state).empty());
  CHECK(one.answer<std::uint64_t>(hash_atom_v) == before);
  state.velocity.f32 = {};
  CHECK(contains(one.refusal<void>(assume_atom_v, state),
                 "replica 0: a model's state: expected "));
  CHECK(one.answer<std::uint64_t>(hash_atom_v) == before);
}

TEST_CASE("a replica refuses masters that are none") {
  asked_replica one;
  lineup none;
  none.layers = {{"norm1", {}}, {"norm2", {}}};
  none.gradients.resize(1);
  CHECK_FALSE(one.follow(none, 1, 2).empty());
  CHECK(contains(one.refusal<lineup>(relay_atom_v, none, std::uint64_t{1},
                                     std::uint64_t{2}),
                 "expected a master to relay to"));
}

TEST_CASE("a replica whose step fails has the statistics of the step before") {
  asked_replica one{norm_kind::local};
  auto leader = one.answer<lineup>(lead_atom_v, std::uint64_t{2});
  auto state = one.answer<model_state>(state_atom_v);
  gradient_exchange other{one.system, leader.gradients, 1,
                          state.velocity.size()};
  other.give_up("no memory");
  CHECK(contains(one.step(0, 64), "no memory"));
  CHECK(one.answer<model_state>(state_atom_v).statistics.f32
        == state.statistics.f32);
  CHECK(one.answer<model_state>(state_atom_v).batches == state.batches);
}

TEST_CASE("a replica that fails tells those why that wait for its gradient") {
  using namespace std::chrono_literals;
  asked_replica one{norm_kind::local};
  auto size = one.answer<model_state>(state_atom_v).velocity.size();
  gradient_exchange first{one.system, 20s, size};
  REQUIRE(one.follow({{}, first.masters()}, 1, 2).empty());
  auto waiting = std::async(std::launch::async, [&] {
    return message_of([&] { (void) first.run({}); });
  });
  CHECK_FALSE(one.step(0, 1438).empty());
  CHECK(contains(waiting.get(), "replica 1: expected a part of 1437 samples"));
}

TEST_CASE("a replica that is told its place has nobody above it any more whom "
          "it could miss") {
  struct network_config : test_config {
    network_config() {
      use_network(*this);
    }
  } network;
  asked_replica one{norm_kind::sync, network};
  auto why = one.refusal<void>(reach_atom_v, std::string{"127.0.0.1:1"});
  CHECK(contains(why, "does not reach 127.0.0.1:1, the process above it: "));
  CHECK(contains(why, one.answer<std::string>(ping_atom_v)));
  CHECK_FALSE(one.answer<std::string>(ping_atom_v).empty());
  CHECK(one.refusal<void>(settle_atom_v, std::uint64_t{0}, std::uint64_t{1})
            .empty());
  CHECK(one.answer<std::string>(ping_atom_v).empty());
}

TEST_CASE("a replica relays from the second replica on, and for as many as "
          "there may be") {
  asked_replica one;
  auto leader = one.answer<lineup>(lead_atom_v, std::uint64_t{3});
  auto relay = [&](std::uint64_t first, std::uint64_t count) {
    return one.refusal<lineup>(relay_atom_v, leader, first, count);
  };
  CHECK(contains(relay(0, 2), "relays for 2 replicas from 0 on"));
  CHECK(contains(relay(most, 2), " replicas from 1844674407"));
  CHECK(contains(relay(1, most), "relays for 1844674407"));
  CHECK(relay(1, 2).empty());
}

TEST_CASE("of several replicas those are named whose own loss is not finite") {
  caf::actor_system system{configuration()};
  auto odd = std::make_shared<dataset>(*digits);
  odd->mean[0] = std::numeric_limits<double>::quiet_NaN();
  settings options;
  options.model = model_kind::mlp;
  options.norm = norm_kind::frozen;
  auto members = spawn_replicas(system, options, {device{}}, digits);
  members.push_back(spawn_replicas(system, options, {device{}}, odd).at(0));
  fleet processes{system, options, members};
  auto* nowhere = std::fopen("/dev/null", "w");
  progress_display display{nowhere};
  trainer coordinator{options, *digits, processes, display,
                      [] { return false; }};
  CHECK(contains(message_of([&] { coordinator.run(); }),
                 "step 1: the loss or the gradient of replica 1 is not "
                 "finite"));
  std::fclose(nowhere);
}

TEST_CASE("replicas whose weights differ end the run with its first epoch") {
  caf::actor_system system{configuration()};
  settings options;
  options.model = model_kind::mlp;
  options.batch = 512;
  options.epochs = 3;
  auto members = spawn_replicas(system, options, {device{}}, digits);
  // It takes other steps.
  auto other = options;
  other.momentum = 0.5;
  members.push_back(spawn_replicas(system, other, {device{}}, digits).at(0));
  fleet processes{system, options, members};
  auto* nowhere = std::fopen("/dev/null", "w");
  progress_display display{nowhere};
  auto steps_before = 0;
  trainer coordinator{options, *digits, processes, display, [&] {
                        ++steps_before;
                        return false;
                      }};
  CHECK(contains(message_of([&] { coordinator.run(); }),
                 "replica 1: the weights differ from replica 0's"));
  // Three steps of 512 or fewer are an epoch.
  CHECK(steps_before == 2);
  std::fclose(nowhere);
}
