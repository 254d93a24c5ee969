#include "syncnorm/detail/round_monitor.hpp"
#include "tests/actors/collective.hpp"
#include "tests/actors/logged.hpp"
#include "tests/actors/wire.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

using adder = collective<double, double>;

sync_metrics metrics_of(adder& c) {
  sync_metrics result;
  detail::request(c.actor(0), c.master(), get_metrics_atom_v)
      .receive([&](sync_metrics& x) { result = std::move(x); },
               [](const caf::error& x) { FAIL(describe(x)); });
  return result;
}

/// `rounds` rounds of the owner and two slaves.
void run_rounds(adder& c, int rounds) {
  auto pipes = c.pipes(2);
  for (int i = 0; i < rounds; ++i) {
    auto a = c.send(pipes[0], 1, 1.0);
    auto b = c.send(pipes[1], 2, 2.0);
    REQUIRE(c.lead(3.0)().value == 6.0);
    std::ignore = a();
    std::ignore = b();
  }
}

/// A round in which slave 2 ends.
void run_death(adder& c) {
  auto pipes = c.pipes(2);
  auto a = c.send(pipes[0], 1, 1.0);
  c.kill(2);
  std::ignore = c.lead(3.0)();
  std::ignore = a();
}

std::uint64_t sum(const std::vector<std::uint64_t>& xs) {
  return std::accumulate(xs.begin(), xs.end(), std::uint64_t{0});
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE_FIXTURE(system_fixture, "a new master has counted nothing") {
  adder c{system, {.layer = "bn1"}, add_up};
  auto m = metrics_of(c);
  CHECK(m.layer == "bn1");
  CHECK(m.participants == 1);
  CHECK(m.rounds == 0);
  CHECK(m.failures.empty());
  CHECK(sum(m.waits) == 0);
  CHECK(m.waited.count() == 0);
}

TEST_CASE_FIXTURE(system_fixture, "a failure is counted, also after a "
                                  "generation that somebody left in good "
                                  "order") {
  adder c{system,
          {.layer = "bn1"},
          [](std::span<identified<double>>) -> std::vector<identified<double>> {
            throw std::runtime_error{"no"};
          }};
  std::ignore = c.pipes(2);
  c.kill(2);
  auto pipes = c.pipes(2);
  auto one = c.send(pipes[0], 1, 1.0);
  auto two = c.send(pipes[1], 2, 1.0);
  CHECK(c.lead(1)().failed(errc::callback_failed));
  CHECK(metrics_of(c).failed(errc::callback_failed) == 1);
}

TEST_CASE_FIXTURE(system_fixture, "an actor that is two slaves and dies is one "
                                  "failure") {
  adder c{system, {.layer = "bn1"}, add_up};
  std::ignore = c.pipe(1);
  REQUIRE(c.enlist(1, 3).value);
  auto zero = c.lead(1);
  c.settle();
  c.kill(1);
  CHECK(zero().failed(errc::participant_down));
  CHECK(metrics_of(c).failed(errc::participant_down) == 1);
}

TEST_CASE_FIXTURE(system_fixture, "with survivors, a round for which the owner "
                                  "and a slave do not come is one failure") {
  adder c{system,
          {.layer = "bn1",
           .deadline = std::chrono::milliseconds{50},
           .policy = failure_policy::continue_with_survivors},
          add_up};
  auto pipes = c.pipes(2);
  auto one = c.send(pipes[0], 1, 1.0)();
  CHECK_MESSAGE(one.failed(errc::deadline_exceeded,
                           {"for replicas 0, 2; have replica 1"}),
                one.text());
  CHECK(metrics_of(c).failed(errc::deadline_exceeded) == 1);
}

TEST_CASE("the log tells from a failed round one that went on without a slave "
          "that was late or one that has not registered") {
  auto go_on_without_one = [](std::int64_t participants) {
    return logged("warning", [=](caf::actor_system& system) {
      adder c{system,
              {.layer = "bn1",
               .deadline = std::chrono::milliseconds{50},
               .policy = failure_policy::continue_with_survivors,
               .participants = participants},
              add_up};
      auto pipes = c.pipes(participants == 3 ? 2 : 1);
      auto one = c.send(pipes[0], 1, 1.0);
      CHECK(c.lead(1.0)().value == 2.0);
      CHECK(one().value == 2.0);
    });
  };
  for (auto participants : {3, 4}) {
    auto text = go_on_without_one(participants);
    CHECK_MESSAGE(contains(text, "have replicas 0, 1; the others go on"), text);
  }
}

TEST_CASE("a round that fails in a thread that had an actor of another system, "
          "which is gone, is logged") {
  auto fail =
      [](std::span<identified<double>>) -> std::vector<identified<double>> {
    throw std::runtime_error{"no"};
  };
  auto text = logged("warning", [&](caf::actor_system& system) {
    std::thread{[&] {
      {
        config cfg;
        caf::actor_system other{cfg};
        caf::scoped_actor self{other};
      }
      sync_master<double, double> master{
          system, {.layer = "bn1", .participants = 1}, fail};
      CHECK(!master.run_master(1.0));
    }}.join();
  });
  CHECK(contains(text, "layer bn1, round 1: the callback threw: no"));
  // It exits between two rounds, which is no failure.
  CHECK_FALSE(contains(text, "the master has exited"));
}

TEST_CASE_FIXTURE(system_fixture, "completed rounds are counted over all "
                                  "generations, each with its wait") {
  adder c{system, {.layer = "bn1"}, add_up};
  run_rounds(c, 5);
  run_rounds(c, 3);
  auto m = metrics_of(c);
  CHECK(m.participants == 3);
  CHECK(m.rounds == 8);
  CHECK(m.failures.empty());
  CHECK(m.waits.size() == sync_metrics::wait_bounds.size() + 1);
  CHECK(sum(m.waits) == 8);
  CHECK(m.waited.count() > 0);
}

TEST_CASE_FIXTURE(system_fixture, "the callback's own time counts for no "
                                  "wait") {
  using clock = std::chrono::steady_clock;
  adder c{system, {.layer = "bn1"}, [](std::span<identified<double>> messages) {
            auto until = clock::now() + std::chrono::milliseconds{15};
            while (clock::now() < until)
              ;
            return add_up(messages);
          }};
  for (int i = 0; i < 5; ++i)
    CHECK(c.lead(1.0)().value == 1.0);
  auto m = metrics_of(c);
  std::uint64_t shorter = 0;
  for (std::size_t i = 0; i < m.wait_bounds.size(); ++i)
    if (m.wait_bounds[i] <= 0.01)
      shorter += m.waits[i];
  // Another process may have had the core in some of them.
  CHECK(shorter > 0);
}

TEST_CASE_FIXTURE(system_fixture, "failed rounds are counted by cause, and not "
                                  "as completed") {
  adder c{system, {.layer = "bn1"}, add_up};
  run_death(c);
  run_rounds(c, 2);
  run_death(c);
  auto pipes = c.pipes(1);
  auto a =
      c.send_tagged(1, {layer_hash("bn2"), pipes[0].generation(), 1, 1}, 1.0);
  CHECK(a().failed(errc::wrong_layer));
  auto m = metrics_of(c);
  CHECK(m.rounds == 2);
  CHECK(sum(m.waits) == 2);
  CHECK(m.failed(errc::participant_down) == 2);
  CHECK(m.failed(errc::wrong_layer) == 1);
  CHECK(m.failed(errc::deadline_exceeded) == 0);
  CHECK(m.failures.size() == 2);
}

TEST_CASE_FIXTURE(system_fixture,
                  "a slave that is expelled counts as a failure "
                  "of a round that counts as completed") {
  adder c{system,
          {.layer = "bn1", .policy = failure_policy::continue_with_survivors},
          add_up};
  run_death(c);
  auto m = metrics_of(c);
  CHECK(m.rounds == 1);
  CHECK(m.failed(errc::participant_down) == 1);
}

TEST_CASE_FIXTURE(system_fixture, "a participant that leaves in good order "
                                  "between two rounds is a failure once "
                                  "somebody comes to the next") {
  for (auto policy :
       {failure_policy::fail_round, failure_policy::continue_with_survivors}) {
    adder c{system, {.layer = "bn1", .policy = policy}, add_up};
    auto pipes = c.pipes(2);
    c.kill(2);
    auto fails = policy == failure_policy::fail_round;
    CHECK(metrics_of(c).participants == (fails ? 1 : 2));
    CHECK(metrics_of(c).failures.empty());
    auto one = c.send(pipes[0], 1, 1.0);
    CHECK(c.lead(1.0)().failed(errc::participant_down) == fails);
    CHECK(one().failed(errc::participant_down) == fails);
    CHECK(metrics_of(c).failed(errc::participant_down) == (fails ? 1 : 0));
  }
}

TEST_CASE_FIXTURE(system_fixture, "a generation that begins in the middle of a "
                                  "round fails it, between two it does not") {
  adder c{system, {.layer = "bn1"}, add_up};
  run_rounds(c, 1);
  run_rounds(c, 1);
  CHECK(metrics_of(c).failures.empty());
  auto waiting = c.lead(1.0);
  c.settle();
  std::ignore = c.pipes(1);
  CHECK(waiting().failed(errc::stale));
  CHECK(metrics_of(c).failed(errc::stale) == 1);
}

TEST_CASE_FIXTURE(system_fixture, "metrics are the same on another node") {
  adder c{system, {.layer = "bn1"}, add_up};
  run_rounds(c, 3);
  run_death(c);
  auto m = metrics_of(c);
  sync_metrics copy;
  REQUIRE(test::deserialize(test::serialize(m), copy));
  CHECK(copy == m);
}

TEST_CASE_FIXTURE(system_fixture, "a wait falls into the bucket whose bound is "
                                  "not below it") {
  detail::round_monitor monitor{system, "bn1"};
  using std::chrono::microseconds;
  monitor.completed(microseconds{10});
  monitor.completed(microseconds{11});
  monitor.completed(std::chrono::seconds{61});
  auto m = monitor.metrics();
  CHECK(m.waits[0] == 1);
  CHECK(m.waits[1] == 1);
  CHECK(m.waits.back() == 1);
  CHECK(m.waited == caf::timespan{std::chrono::seconds{61}} + microseconds{21});
}

#if !SYNCNORM_CAF_LEGACY

/// Collects all integer counters, and the number of values in each histogram.
struct registry_reader {
  std::map<std::string, std::int64_t> values;

  static std::string name(const caf::telemetry::metric_family* family,
                          const caf::telemetry::metric* instance) {
    std::string result = family->prefix() + "." + family->name();
    for (const auto& label : instance->labels())
      result += " " + label.str();
    return result;
  }

  void operator()(const caf::telemetry::metric_family* family,
                  const caf::telemetry::metric* instance,
                  const caf::telemetry::int_counter* counter) {
    values[name(family, instance)] = counter->value();
  }

  template <class T>
  void operator()(const caf::telemetry::metric_family* family,
                  const caf::telemetry::metric* instance,
                  const caf::telemetry::histogram<T>* histogram) {
    auto& count = values[name(family, instance)];
    for (const auto& bucket : histogram->buckets())
      count += bucket.count.value();
  }

  template <class T>
  void operator()(const caf::telemetry::metric_family*,
                  const caf::telemetry::metric*, const T*) {}
};

TEST_CASE_FIXTURE(system_fixture, "CAF's metric registry has the same numbers "
                                  "by layer and cause") {
  adder c{system, {.layer = "bn1"}, add_up};
  run_rounds(c, 4);
  run_death(c);
  adder other{system, {.layer = "bn2"}, add_up};
  run_rounds(other, 1);
  registry_reader reader;
  system.metrics().collect(reader);
  CHECK(reader.values.at("syncnorm.rounds layer=bn1") == 4);
  CHECK(reader.values.at("syncnorm.rounds layer=bn2") == 1);
  CHECK(reader.values.at("syncnorm.failures cause=participant_down layer=bn1")
        == 1);
  CHECK(reader.values.at("syncnorm.wait-time layer=bn1") == 4);
}

#endif

TEST_CASE("the log names generations, registrations, failures and the end, as "
          "far as the level goes") {
  int types = init_types();
  CHECK(types == 0);
  auto use = [](caf::actor_system& system) {
    adder c{system, {.layer = "bn1"}, add_up};
    run_death(c);
    run_rounds(c, 1);
  };
  auto all = logged("debug", use);
  CHECK(contains(all, "syncnorm: layer bn1, round 1: replica 2 has registered, "
                      "generation 1, 2 in all"));
  CHECK(contains(all, "participant_down: layer bn1, round 1: replica 2 is "
                      "down"));
  CHECK(contains(all, "layer bn1: generation 2 begins"));
  CHECK(contains(all, "replica 1 has registered, generation 2"));
  CHECK(contains(all, "the master is down"));
  CHECK_FALSE(contains(all, "the others go on"));

  auto warnings = logged("warning", use);
  CHECK(contains(warnings, "participant_down: layer bn1"));
  CHECK_FALSE(contains(warnings, "generation 2 begins"));
  CHECK_FALSE(contains(logged("quiet", use), "layer bn1"));
}
