#include "tests/actors/collective.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

using tracer = collective<std::int64_t, trace>;
using adder = collective<double, double>;

sync_options named(std::string layer) {
  return {.layer = std::move(layer)};
}

} // namespace

TEST_CASE_FIXTURE(system_fixture,
                  "the callback's input is the master's message, then the "
                  "slaves' by identifier, whatever the order of arrival") {
  tracer c{system, named("bn1"), tell_order};
  auto pipes = c.pipes(3);
  std::vector<int> order{0, 1, 2, 3};
  do {
    std::vector<std::function<outcome<trace>()>> waiting;
    for (auto i : order) {
      if (i == 0)
        waiting.emplace_back(c.lead(100));
      else
        waiting.emplace_back(c.send(pipes[i - 1], i, 100 + i));
      c.settle();
    }
    for (auto& wait : waiting)
      CHECK(wait().value == trace{100, 101, 102, 103});
  } while (std::ranges::next_permutation(order).found);
}

TEST_CASE_FIXTURE(system_fixture, "identifiers may have gaps and register in "
                                  "any order") {
  tracer c{system, named("bn1"), tell_order};
  auto high = c.enlist(1, 900);
  auto low = c.enlist(2, 7);
  CHECK(c.nr_slaves() == 2);
  auto a = c.send_tagged(1, high.value->first, 900);
  auto b = c.send_tagged(2, low.value->first, 7);
  CHECK(c.lead(0)().value == trace{0, 7, 900});
  CHECK(a().value == trace{0, 7, 900});
  CHECK(b().value == trace{0, 7, 900});
}

TEST_CASE_FIXTURE(system_fixture, "a master without slaves answers itself") {
  adder c{system, named("bn1"), add_up};
  for (int i = 0; i < 100; ++i)
    CHECK(c.lead(i)().value == i);
}

TEST_CASE_FIXTURE(system_fixture,
                  "every participant gets the reply made for its identifier") {
  adder c{system, named("bn1"), [](std::span<identified<double>> messages) {
            std::vector<identified<double>> replies;
            for (const auto& x : messages)
              replies.insert(replies.begin(), {x.identifier, -x.message});
            return replies;
          }};
  auto pipes = c.pipes(2);
  auto one = c.send(pipes[0], 1, 10);
  auto two = c.send(pipes[1], 2, 20);
  CHECK(c.lead(5)().value == -5);
  CHECK(one().value == -10);
  CHECK(two().value == -20);
}

TEST_CASE_FIXTURE(system_fixture, "a registration that is refused after a "
                                  "round begins no generation") {
  adder c{system, named("bn1"), add_up};
  auto pipes = c.pipes(1);
  for (int round = 0; round < 3; ++round) {
    auto a = c.send(pipes[0], 1, 2);
    auto owner = c.lead(1)();
    CHECK_MESSAGE(owner.value == 3, owner.text());
    CHECK(a().value == 3);
    CHECK(c.enlist(2, -7).failed(errc::invalid_identifier, {"got -7"}));
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "registering after a round has run begins a generation, and "
                  "an old pipe gets stale") {
  adder c{system, named("bn1"), add_up};
  auto old = c.pipes(2);
  CHECK(old[0].generation() == 1);
  auto one = c.send(old[0], 1, 1);
  auto two = c.send(old[1], 2, 2);
  CHECK(c.lead(0)().value == 3);
  auto fresh = c.pipe(1);
  CHECK(fresh.generation() == 2);
  CHECK(c.nr_slaves() == 1);
  CHECK(c.send(old[1], 2, 2)().failed(errc::stale, {"layer bn1", "replica 2"}));
  CHECK(c.send(old[0], 1, 2)().failed(errc::stale, {"replica 1"}));
  auto again = c.send(fresh, 1, 8);
  CHECK(c.lead(1)().value == 9);
  CHECK(again().value == 9);
}

TEST_CASE_FIXTURE(system_fixture,
                  "a registration in the middle of a later round ends it with "
                  "stale for those who wait") {
  adder c{system, named("bn1"), add_up};
  auto pipes = c.pipes(2);
  auto one = c.send(pipes[0], 1, 1);
  auto two = c.send(pipes[1], 2, 2);
  c.lead(0)();
  auto waiting = c.send(pipes[0], 1, 1);
  c.settle();
  c.enlist(3, 3);
  CHECK(waiting().failed(errc::stale, {"layer bn1, round 2"}));
}

TEST_CASE_FIXTURE(system_fixture,
                  "an identifier that is taken, zero or negative is refused") {
  adder c{system, named("bn1"), add_up};
  CHECK(c.enlist(1, 4).value);
  CHECK(c.enlist(2, 4).failed(errc::duplicate_identifier,
                              {"layer bn1", "replica 4"}));
  CHECK(c.enlist(2, -1).failed(errc::invalid_identifier,
                               {"layer bn1", "1 or more", "-1"}));
  CHECK(c.enlist(2, 0).failed(errc::invalid_identifier, {"got 0"}));
  CHECK(c.nr_slaves() == 1);
}

TEST_CASE_FIXTURE(system_fixture,
                  "an empty callback, an empty layer name and a deadline of "
                  "zero or less are refused before anything is spawned") {
  auto code_of_spawn = [this](sync_options options,
                              sync_callback<double, double> callback) {
    try {
      std::ignore = spawn_sync_master<double, double>(
          system, std::move(options), std::move(callback));
    } catch (const error& x) {
      return std::string{x.what()};
    }
    return std::string{};
  };
  CHECK(code_of_spawn(named("bn7"), nullptr)
        == "spawn_sync_master of layer bn7: the callback is empty");
  CHECK(code_of_spawn(named(""), add_up)
        == "sync_options: the layer must have a name, got an empty one");
  CHECK(code_of_spawn({.layer = "bn7", .deadline = caf::timespan{0}}, add_up)
        == "sync_options of layer bn7: the deadline must be longer than zero, "
           "got 0 ns");
  CHECK(code_of_spawn({.layer = "bn7", .deadline = caf::timespan{-5}}, add_up)
        != "");
  CHECK(
      code_of_spawn({.layer = "bn7", .deadline = caf::timespan::max()}, add_up)
      == "sync_options of layer bn7: the deadline must be a year or less, "
         "got 2562047h");
  CHECK(code_of_spawn({.layer = "bn7", .policy = failure_policy{7}}, add_up)
        == "sync_options of layer bn7: the policy must be fail_round or "
           "continue_with_survivors, got 7");
  CHECK(code_of_spawn({.layer = "bn7", .participants = -1}, add_up)
        == "sync_options of layer bn7: the participants must be 1 or more, or "
           "0 for any number, got -1");
}

TEST_CASE_FIXTURE(system_fixture,
                  "a reduction for less than no participants, or for others "
                  "than the options, is refused before anything is spawned") {
  auto text_of_spawn = [this](std::int64_t options, std::int64_t reduction) {
    try {
      std::ignore = spawn_sync_master<double, double>(
          system, {.layer = "bn7", .participants = options},
          sync_reduction<double, double>{
              [](auto parts) { return parts[0].message; },
              [](double total) { return total; }, reduction});
    } catch (const error& x) {
      CHECK(x.code() == errc::invalid_argument);
      return std::string{x.what()};
    }
    return std::string{};
  };
  std::string begin = "spawn_sync_master of layer bn7: participants of the "
                      "reduction: expected ";
  CHECK(text_of_spawn(0, -2)
        == begin + "1 or more, or 0 for any number, got -2");
  CHECK(text_of_spawn(2, 3) == begin + "the 2 of the options, or 0, got 3");
  for (auto [options, reduction] :
       {std::pair{0, 3}, std::pair{3, 0}, std::pair{3, 3}})
    CHECK(text_of_spawn(options, reduction).empty());
}

TEST_CASE_FIXTURE(system_fixture,
                  "a thread that registers with no master is told so") {
  sync_master_actor<double, double> none;
  auto pipe = register_slave_thread<double, double>(system, none, 1);
  REQUIRE(!pipe);
  CHECK(describe(pipe.error())
        == "invalid_argument: register_slave_thread: replica 1: expected a "
           "master, got a null handle");
}

TEST_CASE_FIXTURE(system_fixture,
                  "a message from somebody unregistered is refused and harms "
                  "nobody") {
  adder c{system, named("bn1"), add_up};
  auto pipes = c.pipes(1);
  auto tag = round_tag{layer_hash("bn1"), 1, 1, 5};
  CHECK(c.send_tagged(2, tag, 1)().failed(errc::unregistered, {"replica 5"}));
  // Another actor under slave 1's identifier.
  tag.identifier = 1;
  CHECK(c.send_tagged(2, tag, 1)().failed(errc::unregistered, {"replica 1"}));
  auto one = c.send(pipes[0], 1, 1);
  CHECK(c.lead(1)().value == 2);
  CHECK(one().value == 2);
}

TEST_CASE_FIXTURE(system_fixture,
                  "several masters with the same participants work side by "
                  "side") {
  adder a{system, named("bn1"), add_up};
  adder b{system, named("bn2"), add_up};
  auto pa = a.pipes(2);
  auto pb = b.pipes(2);
  for (int round = 0; round < 50; ++round) {
    auto a1 = a.send(pa[0], 1, 1);
    auto b2 = b.send(pb[1], 2, 20);
    auto b0 = b.lead(40);
    auto b1 = b.send(pb[0], 1, 10);
    auto a2 = a.send(pa[1], 2, 2);
    auto a0 = a.lead(4);
    CHECK(a0().value == 7);
    CHECK(a1().value == 7);
    CHECK(a2().value == 7);
    CHECK(b0().value == 70);
    CHECK(b1().value == 70);
    CHECK(b2().value == 70);
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "payloads inside one process are shared, not copied") {
  using block = float_array;
  const float* seen = nullptr;
  collective<block, block> c{
      system, named("bn1"), [&](std::span<identified<block>> messages) {
        seen = messages[1].message.data();
        std::vector<identified<block>> replies;
        for (const auto& x : messages)
          replies.push_back({x.identifier, messages[1].message});
        return replies;
      }};
  auto pipes = c.pipes(1);
  block payload{1, 2, 3};
  auto one = c.send(pipes[0], 1, payload);
  auto zero = c.lead(block{});
  CHECK(zero().value->data() == payload.data());
  CHECK(one().value->data() == payload.data());
  CHECK(seen == payload.data());
}

namespace {

sync_options of_three(caf::timespan deadline = std::chrono::hours{1}) {
  return {.layer = "bn1", .deadline = deadline, .participants = 3};
}

} // namespace

TEST_CASE_FIXTURE(system_fixture,
                  "a master that was told how many take part waits for those "
                  "who have not registered, also after a failure") {
  tracer c{system, of_three(), tell_order};
  for (int generation = 0; generation < 4; ++generation) {
    std::optional<tracer::pipe_type> first;
    if (generation % 2 == 0)
      first = c.pipe(1);
    auto owner = c.lead(100);
    c.settle();
    if (!first)
      first = c.pipe(1);
    auto one = c.send(*first, 1, 101);
    c.settle();
    auto second = c.pipe(2);
    CHECK(c.nr_slaves() == 2);
    auto two = c.send(second, 2, 102);
    CHECK(owner().value == trace{100, 101, 102});
    CHECK(one().value == trace{100, 101, 102});
    CHECK(two().value == trace{100, 101, 102});
    second.give_up(c.actor(2), "out of data");
    CHECK(c.lead(100)().failed(errc::participant_failed));
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a master that was told how many take part refuses others, "
                  "and names those who never came") {
  adder c{system, of_three(std::chrono::milliseconds{20}), add_up};
  CHECK(c.enlist(3, 3).failed(errc::invalid_identifier,
                              {"this master is for replicas 0 to 2, not for "
                               "replica 3"}));
  auto first = c.pipe(1);
  auto one = c.send(first, 1, 1.0);
  CHECK(c.lead(1.0)().failed(errc::deadline_exceeded,
                             {"for replica 2; have replicas 0, 1"}));
  CHECK(one().failed(errc::deadline_exceeded));
}

TEST_CASE_FIXTURE(system_fixture,
                  "with survivors, a master that was told how many take part "
                  "goes on without those who were expelled or never came") {
  auto options = of_three(std::chrono::milliseconds{20});
  options.policy = failure_policy::continue_with_survivors;
  adder c{system, options, add_up};
  auto first = c.pipe(1);
  auto one = c.send(first, 1, 1.0);
  CHECK(c.lead(1.0)().value == 2);
  CHECK(one().value == 2);
  adder d{system, options, add_up};
  auto pipes = d.pipes(2);
  pipes[1].give_up(d.actor(2), "out of data");
  auto other = d.send(pipes[0], 1, 1.0);
  CHECK(d.lead(1.0)().value == 2);
  CHECK(other().value == 2);
}
