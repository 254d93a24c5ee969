#include "trainer/run/gradient_exchange.hpp"
#include "trainer/run/gradient_sum.hpp"
#include "trainer/run/relay_station.hpp"

#include "trainer/scratch_folder.hpp"
#include "trainer/test_config.hpp"

#include "syncnorm/caf_error.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::train;

namespace {

constexpr caf::timespan deadline = std::chrono::seconds{60};

/// Replica 0, and two that stand behind relays.
struct exchanges {
  caf::actor_system system{configuration()};
  relay_station station;
  std::vector<std::unique_ptr<gradient_exchange>> ends;

  explicit exchanges(std::size_t elements) {
    ends.push_back(
        std::make_unique<gradient_exchange>(system, deadline, elements));
    auto followed =
        station.open(system, {{}, ends[0]->masters()}, {.first = 1, .count = 2})
            .gradients;
    for (std::size_t i : {1U, 2U})
      ends.push_back(
          std::make_unique<gradient_exchange>(system, followed, i, elements));
  }

  /// `f` of each end, each in a thread of its own; the results in their order.
  template <class F>
  auto on_all(F f) {
    using result_type = decltype(f(*ends[0], std::size_t{0}));
    std::vector<std::future<result_type>> running;
    for (std::size_t i = 0; i < ends.size(); ++i)
      running.push_back(
          std::async(std::launch::async, [&, i] { return f(*ends[i], i); }));
    std::vector<result_type> results;
    for (auto& x : running)
      results.push_back(x.get());
    return results;
  }

  std::uint64_t rounds_of(const gradient_master& master) {
    std::uint64_t result = 0;
    caf::scoped_actor self{system};
    read_metrics(self, master)
        .receive([&](const sync_metrics& x) { result = x.rounds; },
                 [](const caf::error&) {});
    return result;
  }
};

gradient_part part_of(std::size_t replica, std::size_t elements) {
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i)
    values[i] =
        static_cast<float>(std::sin(static_cast<double>(i + 7 * replica))
                           * std::exp(static_cast<double>((i + replica) % 40)));
  return {1.0 / static_cast<double>(3 + replica), flat_array{values}};
}

/// What one master would answer to the whole gradients at once.
gradient_sum whole_sum(const std::vector<gradient_part>& parts) {
  std::vector<identified<gradient_part>> messages;
  for (const auto& x : parts)
    messages.push_back({static_cast<std::int64_t>(messages.size()), x});
  return finish_gradients(merge_gradients(messages));
}

} // namespace

TEST_CASE("gradients in chunks, by relays, are the sums of whole ones") {
  // More chunks than lanes, and a last one that is not full.
  constexpr auto elements = 17 * gradient_chunk + 5;
  exchanges all{elements};
  std::vector<gradient_part> parts;
  for (std::size_t i : {0U, 1U, 2U})
    parts.push_back(part_of(i, elements));
  auto expected = whole_sum(parts);
  for (int step = 0; step < 2; ++step)
    for (const auto& sum : all.on_all(
             [&](auto&end, std::size_t i) { return end.run(parts[i]); })) {
      CHECK(sum.gradient.f32 == expected.gradient.f32);
      CHECK(sum.loss == expected.loss);
      CHECK(sum.finite);
    }
  REQUIRE(all.ends[0]->masters().size() == max_gradient_lanes);
  CHECK(all.rounds_of(all.ends[0]->masters()[1]) == 2 * 2);
  CHECK(all.rounds_of(all.ends[0]->masters()[2]) == 2 * 1);
}

TEST_CASE("a small gradient travels as one message") {
  exchanges all{100};
  CHECK(all.ends[0]->masters().size() == 1);
}

TEST_CASE("a replica without samples sends no chunks, and gets the whole sum") {
  constexpr auto elements = 2 * gradient_chunk;
  exchanges all{elements};
  auto part = part_of(1, elements);
  for (const auto& sum : all.on_all([&](auto&end, std::size_t i) {
         return end.run(i == 1 ? part : gradient_part{});
       })) {
    CHECK(sum.gradient.f32 == part.gradient.f32);
    CHECK(sum.loss == part.loss);
  }
}

TEST_CASE("a value that is not finite marks the sum, whatever its chunk") {
  constexpr auto elements = 3 * gradient_chunk;
  exchanges all{elements};
  std::vector<float> values(elements);
  values[gradient_chunk + 3] = NAN;
  gradient_part part{0, flat_array{values}};
  for (const auto& sum :
       all.on_all([&](auto&end, std::size_t) { return end.run(part); }))
    CHECK_FALSE(sum.finite);
}

TEST_CASE("a replica that gives up between chunks ends the exchange for all") {
  constexpr auto elements = 20 * gradient_chunk;
  exchanges all{elements};
  for (const auto& text :
       all.on_all([&](auto&end, std::size_t i) -> std::string {
         if (i == 2) {
           end.give_up("no memory");
           return "no memory";
         }
         return message_of([&] { (void) end.run(part_of(i, elements)); });
       }))
    CHECK(contains(text, "no memory"));
}

TEST_CASE("a gradient of another model is refused before anything is sent") {
  exchanges all{10};
  CHECK(message_of([&] { (void) all.ends[1]->run(part_of(1, 11)); })
        == "gradients: expected 10 values, got 11");
  CHECK(message_of([&] {
          gradient_exchange{all.system, all.ends[0]->masters(), 3,
                            2 * gradient_chunk};
        })
        == "gradients: expected 2 masters for a model of 131072 weights, got "
           "1");
}

TEST_CASE("a gradient that does not come in time, or whose replica 0 gives up, "
          "ends the exchange") {
  using namespace std::chrono_literals;
  for (auto gives_up : {false, true}) {
    caf::actor_system system{configuration()};
    gradient_exchange first{system, gives_up ? deadline : 10ms, 10};
    gradient_exchange second{system, first.masters(), 1, 10};
    auto waiting = std::async(std::launch::async, [&] {
      return message_of([&] { (void) second.run(part_of(1, 10)); });
    });
    if (gives_up)
      first.give_up("no memory");
    CHECK(waiting.wait_for(20s) == std::future_status::ready);
    first.give_up("late");
    CHECK(waiting.get() != "nothing was thrown");
  }
}
