// Outputs that overlap what is read.

#include "tests/actors/replicated.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// All arrays of the state and the gradients, one behind the other.
std::vector<double> state_and_gradients(batch_norm_layer& layer) {
  std::vector<double> result;
  for (const auto& arrays :
       {layer.replica().state(), layer.replica().gradients()})
    for (const auto& x : arrays)
      for (auto value : read({x}, x.name))
        result.push_back(value);
  return result;
}

/// Two samples without gaps, and memory that overlaps them.
struct overlapping {
  std::vector<double> values = {1, 2, 3, 5, 8, 13};
  tensor_layout layout =
      make_layout(dtype::float64, std::array<std::int64_t, 2>{2, 2});

  [[nodiscard]] const_tensor_view in() const {
    return {values.data(), layout};
  }

  /// The second sample of `in`, and one behind it.
  [[nodiscard]] tensor_view shifted() {
    return {values.data() + 2, layout};
  }

  /// The memory of `in`, its samples further apart.
  [[nodiscard]] tensor_view spread() {
    auto wider = layout;
    wider.sample_stride = 4;
    return {values.data(), wider};
  }
};

/// Checks that both outputs that do not go with the input are refused by a pass
/// of that layer, and that it and the memory stay as they are.
void check_refused(batch_norm_layer& layer, overlapping& memory,
                   const std::function<void(const tensor_view&)>& pass,
                   const std::string& argument) {
  auto state = state_and_gradients(layer);
  auto values = memory.values;
  auto shifted = outcome_of([&] { pass(memory.shifted()); });
  CHECK(shifted.first == errc::invalid_argument);
  CHECK(contains(shifted.second, "layer bn: " + argument
                                     + ": expected memory "
                                       "apart from"));
  auto spread = outcome_of([&] { pass(memory.spread()); });
  CHECK(spread.first == errc::invalid_argument);
  CHECK(contains(spread.second, argument + ": expected the sample stride of"));
  CHECK(state_and_gradients(layer) == state);
  CHECK(memory.values == values);
}

} // namespace

TEST_CASE_FIXTURE(layer_fixture, "an output that overlaps its input is refused "
                                 "before anything is learned or written") {
  auto running = make_options();
  auto untracked = make_options();
  untracked.track_running_stats = false;
  auto online = make_options();
  online.online = true;
  for (const auto& options : {running, untracked, online})
    for (auto trains : {true, false}) {
      batch_norm_layer layer{system, options};
      layer.replica().train(trains);
      overlapping memory;
      check_refused(
          layer, memory,
          [&](const auto& y) { std::ignore = layer.forward(memory.in(), y); },
          "forward: y");
      overlapping inputs;
      overlapping outputs;
      auto tape = layer.forward(inputs.in(), outputs.spread());
      check_refused(
          layer, memory,
          [&](const auto& dx) {
            layer.backward(memory.in(), inputs.in(), tape, dx);
          },
          "backward: dx");
      check_refused(
          layer, memory,
          [&](const auto& dx) {
            layer.backward(inputs.in(), memory.in(), tape, dx);
          },
          "backward: dx");
    }
}

TEST_CASE_FIXTURE(replicated, "an output that overlaps its input fails the "
                              "round of all copies, and none has learned from "
                              "it") {
  std::vector<overlapping> xs(copy_count);
  std::vector<overlapping> ys(copy_count);
  std::vector<batch_norm_tape> tapes(copy_count);
  auto check_failed = [&](const char* argument, auto pass) {
    std::vector<std::vector<double>> before;
    for (auto& copy : copies)
      before.push_back(state_and_gradients(*copy));
    auto thrown = on_threads(copy_count, pass);
    for (std::size_t r = 0; r < copy_count; ++r) {
      auto got = outcome(thrown[r]);
      auto wanted = r == 1 ? errc::invalid_argument : errc::participant_failed;
      CHECK(got.first == wanted);
      CHECK(contains(got.second, argument));
      CHECK(state_and_gradients(*copies[r]) == before[r]);
    }
    release_replicas(copies);
    execute_replication_callbacks(copies);
  };
  auto y_of = [&](std::size_t r) {
    return tensor_view{ys[r].values.data(), ys[r].layout};
  };
  auto forward_into = [&](std::size_t r, const tensor_view& y) {
    tapes[r] = copies[r]->forward(xs[r].in(), y);
  };
  check_failed("layer bn: forward: y: expected memory apart from x's",
               [&](std::size_t r) {
                 forward_into(r, r == 1 ? xs[r].shifted() : y_of(r));
               });
  run_all(copy_count, [&](std::size_t r) { forward_into(r, y_of(r)); });
  check_failed("layer bn: backward: dx: expected memory apart from dy's",
               [&](std::size_t r) {
                 copies[r]->backward(ys[r].in(), xs[r].in(), tapes[r],
                                     r == 1 ? ys[r].shifted() : y_of(r));
               });
  check_works(copies);
}
