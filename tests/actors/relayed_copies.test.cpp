// Copies of one process that are more than the fan-in: relays between them and
// their master.

#include "syncnorm/batch_norm_stage.hpp"

#include "tests/actors/batch_norm_reference.hpp"
#include "tests/actors/layer_copies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

constexpr std::size_t copy_count = 40;
/// More than there are copies: no relays.
constexpr std::int64_t flat = 1000;

batch_norm_options options_of(std::optional<std::int64_t> fan_in) {
  return {.name = "bn",
          .channels = 3,
          .type = dtype::float64,
          .deadline = std::chrono::seconds{30},
          .fan_in = fan_in};
}

/// What copy r sees in a step: some samples, of some copies none. Values whose
/// sums have other bits in another order.
tensor make_input(std::size_t r, int step, bool gradient) {
  std::vector<std::int64_t> sizes{static_cast<std::int64_t>(r % 4), 3, 2};
  tensor x{make_layout(dtype::float64, sizes)};
  std::mt19937 random{static_cast<unsigned>(1000 * step + 2 * int(r))
                      + (gradient ? 1U : 0U)};
  fill(x, random, 5, std::pow(10.0, double(r % 5)));
  return x;
}

using bytes = std::vector<std::byte>;

/// What came out of all copies, bit for bit.
using outputs = std::vector<bytes>;

bytes bits_of(const std::vector<double>& values) {
  auto view = std::as_bytes(std::span{values});
  return {view.begin(), view.end()};
}

outputs run_layers(layers& copies, int steps = 2) {
  std::vector<outputs> results(copies.size());
  run_all(copies.size(), [&](std::size_t r) {
    for (int step = 0; step < steps; ++step) {
      auto x = make_input(r, step, false);
      auto dy = make_input(r, step, true);
      tensor y{x.layout};
      tensor dx{x.layout};
      auto tape = copies[r]->forward(x.view(), y.view());
      copies[r]->backward(dy.view(), x.view(), tape, dx.view());
      results[r].push_back(y.bytes);
      results[r].push_back(dx.bytes);
    }
    auto& replica = copies[r]->replica();
    for (const auto* name : {"running_mean", "running_var"})
      results[r].push_back(bits_of(read(replica.state(), name)));
    results[r].push_back(bits_of(read(replica.gradients(), "weight")));
  });
  outputs all;
  for (auto& x : results)
    all.insert(all.end(), x.begin(), x.end());
  return all;
}

outputs layers_with(caf::actor_system& system,
                    std::optional<std::int64_t> fan_in) {
  auto copies = make_copies(system, options_of(fan_in), copy_count);
  execute_replication_callbacks(copies);
  return run_layers(copies);
}

bytes fetch(const shared_tensor& x, const tensor& like) {
  const auto* first = static_cast<const std::byte*>(x.view().data());
  return {first, first + like.bytes.size()};
}

/// One step of slave actors.
outputs stages_with(caf::actor_system& system, std::int64_t fan_in) {
  std::vector<std::unique_ptr<batch_norm_stage>> stages;
  for (std::size_t r = 0; r < copy_count; ++r)
    stages.push_back(
        std::make_unique<batch_norm_stage>(system, options_of(fan_in)));
  execute_replication_callbacks(stages);
  outputs results(2 * copy_count);
  caf::scoped_actor self{system};
  auto fail = [](const caf::error& reason) { FAIL(describe(reason)); };
  std::vector<std::uint64_t> pass_ids(copy_count);
  auto all = [&](auto ask, auto take) {
    using pending = decltype(ask(std::size_t{0}));
    std::vector<pending> waiting;
    for (std::size_t r = 0; r < copy_count; ++r)
      waiting.push_back(ask(r));
    for (std::size_t r = 0; r < copy_count; ++r)
      take(r, std::move(waiting[r]));
  };
  all(
      [&](std::size_t r) {
        return detail::request(self, stages[r]->slave(), forward_atom_v,
                               share(make_input(r, 0, false)));
      },
      [&](std::size_t r, auto x) {
        std::move(x).receive(
            [&](const shared_tensor& y, std::uint64_t pass_id) {
              results[r] = fetch(y, make_input(r, 0, false));
              pass_ids[r] = pass_id;
            },
            fail);
      });
  all(
      [&](std::size_t r) {
        return detail::request(self, stages[r]->slave(), backward_atom_v,
                               pass_ids[r], share(make_input(r, 0, true)));
      },
      [&](std::size_t r, auto x) {
        std::move(x).receive(
            [&](const shared_tensor& dx) {
              results[copy_count + r] = fetch(dx, make_input(r, 0, true));
            },
            fail);
      });
  return results;
}

/// All copies but `missing` take part in a round, then `fault` happens. Checks
/// that each of them gets that error.
template <class Fault>
void check_failure(caf::actor_system& system, std::size_t missing, Fault fault,
                   errc code, const std::string& part) {
  auto copies = make_copies(system, options_of(4), copy_count);
  execute_replication_callbacks(copies);
  auto thrown = on_threads(copy_count, [&](std::size_t r) {
    auto x = make_input(r, 0, false);
    tensor y{x.layout};
    if (r == missing)
      fault(*copies[r]);
    else
      copies[r]->forward(x.view(), y.view());
  });
  for (std::size_t r = 0; r < copy_count; ++r) {
    auto got = outcome(thrown[r]);
    CHECK(got.first == (r == missing ? errc::none : code));
    CHECK_MESSAGE((r == missing || contains(got.second, part)), got.second);
  }
  // The same modules, replicated anew, work as ever.
  release_replicas(copies);
  for (auto& x : copies)
    x->replica().zero_gradients();
  execute_replication_callbacks(copies);
  CHECK(run_layers(copies) == layers_with(system, flat));
}

} // namespace

TEST_CASE_FIXTURE(layer_fixture, "copies above the fan-in give the flat "
                                 "master's bits, forward and backward") {
  auto truth = layers_with(system, flat);
  for (std::int64_t fan_in : {2, 4, 16})
    CHECK(layers_with(system, fan_in) == truth);
  CHECK(layers_with(system, std::nullopt) == truth);
}

TEST_CASE_FIXTURE(layer_fixture, "so do slave actors") {
  auto truth = stages_with(system, flat);
  for (std::int64_t fan_in : {4, 16})
    CHECK(stages_with(system, fan_in) == truth);
}

TEST_CASE_FIXTURE(layer_fixture,
                  "above the fan-in copies register with relays, "
                  "and know their master all the same") {
  for (std::int64_t fan_in : {4, 40}) {
    CAPTURE(fan_in);
    callback_context context{"bn", copy_count};
    sync_options options{.layer = "bn", .fan_in = fan_in};
    std::vector<batch_norm_participant> copies;
    for (std::int64_t r = 0; r < context.copies(); ++r)
      copies.push_back(
          batch_norm_participant::replicate(system, options, context, r));
    auto relays = context.published<std::shared_ptr<batch_norm_relays>>();
    CHECK((relays->size() > 9) == (fan_in == 4));
    for (std::int64_t r = 0; r < context.copies(); ++r) {
      CHECK(copies[std::size_t(r)].master() == copies[0].master());
      CHECK((relays->at(r) == copies[0].master()) == (fan_in == 40 || r == 0));
    }
  }
}

TEST_CASE_FIXTURE(layer_fixture, "a copy that goes, or gives up, below a relay "
                                 "is named to all, who can be replicated "
                                 "anew") {
  check_failure(
      system, 23, [](auto& x) { x.on_data_parallel_release(); },
      errc::participant_down, "layer bn, round 1: replica 23 is down");
  check_failure(
      system, 39, [](auto& x) { x.on_data_parallel_failure("out of data"); },
      errc::participant_failed, "replica 39 gave up: out of data");
  check_failure(
      system, 0, [](auto& x) { x.on_data_parallel_release(); },
      errc::master_down, "");
}

TEST_CASE("on a device the master takes the messages of all copies, unless the "
          "options say otherwise") {
  auto options = options_of(std::nullopt);
  CHECK(make_sync_options(options).fan_in == std::nullopt);
  options.where.type = device_type::cuda;
  CHECK(make_sync_options(options).fan_in.value() > 1'000'000'000);
  options.fan_in = 4;
  CHECK(make_sync_options(options).fan_in == 4);
  options = options_of(1);
  CHECK_THROWS_AS(options.validate(), error);
}
