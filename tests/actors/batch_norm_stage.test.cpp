#include "tests/actors/stage_fixture.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// The words of a text, in alphabetical order.
std::vector<std::string> sorted_words(const std::string& text) {
  std::istringstream in{text};
  std::vector<std::string> result{std::istream_iterator<std::string>{in}, {}};
  std::ranges::sort(result);
  return result;
}

} // namespace

TEST_CASE_FIXTURE(stage_fixture, "an array of no such name is refused with the "
                                 "names that there are, whatever the options") {
  for (int i = 0; i < 12; ++i) {
    auto options = float64_options;
    options.affine = i % 2 == 0;
    options.frozen = i >= 4 && i < 8;
    options.online = i >= 8 && i < 10;
    options.track_running_stats = i < 10;
    batch_norm_stage stage{system, options};
    std::string names;
    for (const auto& x : stage.replica().state())
      names += x.name + ' ';
    for (const auto& x : stage.replica().gradients())
      names += x.name + ".grad ";
    callback_context context{"", 1};
    stage.on_data_parallel_replicate(context, 0);
    std::string told;
    c.ask(stage, read_state_atom_v, std::string{"none"})
        .receive([](const double_array&) {},
                 [&](const caf::error& reason) { told = describe(reason); });
    auto listed = told.substr(told.find('[') + 1);
    listed = listed.substr(0, listed.find(']'));
    std::erase(listed, ',');
    CHECK(sorted_words(listed) == sorted_words(names));
    stage.on_data_parallel_release();
  }
}

TEST_CASE_FIXTURE(stage_fixture, "slave actors answer as one device on the "
                                 "whole batch, with several micro-batches in "
                                 "flight") {
  constexpr std::size_t copies = 4;
  constexpr std::size_t micro_batches = 3;
  auto net = replicated(copies);
  std::vector<std::vector<tensor>> xs(micro_batches), dys(micro_batches);
  using forward_type = decltype(c.forward(*net[0], {}));
  using backward_type = decltype(c.backward(*net[0], 0, {}));
  std::vector<std::vector<forward_type>> forwards(micro_batches);
  for (std::size_t m = 0; m < micro_batches; ++m)
    for (std::size_t r = 0; r < copies; ++r) {
      xs[m].push_back(
          make_tensor(float64_options, 1 + std::int64_t(r), random));
      dys[m].push_back(
          make_tensor(float64_options, 1 + std::int64_t(r), random));
      forwards[m].push_back(c.forward(*net[r], xs[m][r]));
    }
  std::vector<std::vector<std::uint64_t>> pass_ids(micro_batches);
  for (std::size_t m = 0; m < micro_batches; ++m) {
    expectation want{float64_options, xs[m], dys[m]};
    for (std::size_t r = 0; r < copies; ++r) {
      auto got = c.await_forward(std::move(forwards[m][r]));
      REQUIRE(describe(got.reason) == describe({}));
      check_near(got.value, want.y[r]);
      pass_ids[m].push_back(got.pass_id);
    }
  }
  // Backward in the other order: a pass id says which pass is meant.
  for (std::size_t m = micro_batches; m-- > 0;) {
    std::vector<backward_type> backwards;
    for (std::size_t r = 0; r < copies; ++r)
      backwards.push_back(c.backward(*net[r], pass_ids[m][r], dys[m][r]));
    expectation want{float64_options, xs[m], dys[m]};
    for (std::size_t r = 0; r < copies; ++r) {
      auto got = c.await_backward(std::move(backwards[r]));
      REQUIRE(describe(got.reason) == describe({}));
      check_near(got.value, want.dx[r]);
    }
  }
  for (auto& stage : net)
    CHECK(c.read_state(*stage, "num_batches_tracked")[0] == micro_batches);
}

TEST_CASE_FIXTURE(stage_fixture, "many more slave actors than workers wait for "
                                 "each other: none blocks its worker") {
  auto copies = 8 * std::max(4U, std::thread::hardware_concurrency());
  auto net = replicated(copies);
  std::vector<tensor> xs;
  std::vector<decltype(c.forward(*net[0], {}))> pending;
  for (auto& stage : net) {
    xs.push_back(make_tensor(float64_options, 2, random));
    pending.push_back(c.forward(*stage, xs.back()));
  }
  expectation want{float64_options, xs, xs};
  for (std::size_t r = 0; r < net.size(); ++r)
    check_near(c.await_forward(std::move(pending[r])).value, want.y[r]);
}

TEST_CASE_FIXTURE(stage_fixture, "a slave actor and a thread are copies of one "
                                 "layer") {
  // One tree for each kind of copy.
  batch_norm_stage stage{system, float64_options};
  batch_norm_layer layer{system, float64_options};
  callback_context context{"", 2};
  stage.on_data_parallel_replicate(context, 0);
  layer.on_data_parallel_replicate(context, 1);
  std::vector xs{make_tensor(float64_options, 3, random),
                 make_tensor(float64_options, 2, random)};
  expectation want{float64_options, xs, xs};
  auto pending = c.forward(stage, xs[0]);
  tensor y{xs[1].layout};
  auto tape = layer.forward(xs[1].view(), y.view());
  auto first = c.await_forward(std::move(pending));
  check_near(first.value, want.y[0]);
  check_near(y, want.y[1]);
  auto pending_dx = c.backward(stage, first.pass_id, xs[0]);
  layer.backward(xs[1].view(), xs[1].view(), tape, y.view());
  check_near(c.await_backward(std::move(pending_dx)).value, want.dx[0]);
  check_near(y, want.dx[1]);
}

TEST_CASE_FIXTURE(stage_fixture, "one copy needs no master, and evaluation no "
                                 "other copy") {
  auto alone = replicated(1);
  std::vector xs{make_tensor(float64_options, 3, random)};
  expectation want{float64_options, xs, xs};
  auto got = c.await_forward(c.forward(*alone[0], xs[0]));
  check_near(got.value, want.y[0]);
  check_near(c.await_backward(c.backward(*alone[0], got.pass_id, xs[0])).value,
             want.dx[0]);

  auto two = replicated(2);
  c.ask(*two[1], train_atom_v, false).receive([] {}, [](const caf::error&) {});
  got = c.await_forward(c.forward(*two[1], xs[0]));
  CHECK(got.pass_id == 0);
  auto inv_std = 1 / std::sqrt(1 + 1e-5);
  reference::for_each(xs, [&](auto, auto, auto i) {
    CHECK(std::abs(got.value.get(i) - xs[0].get(i) * inv_std) <= tolerance);
  });
}

TEST_CASE_FIXTURE(stage_fixture, "a slave actor tells what its master has "
                                 "counted") {
  auto rounds_of = [&](const batch_norm_stage& stage) {
    std::uint64_t result = 0;
    c.ask(stage, get_metrics_atom_v)
        .receive([&](const sync_metrics& x) { result = x.rounds; },
                 [](const caf::error& e) { FAIL(describe(e)); });
    return result;
  };
  auto two = replicated(2);
  auto x = make_tensor(float64_options, 3, random);
  auto first = c.forward(*two[0], x);
  auto second = c.forward(*two[1], x);
  std::ignore = c.await_forward(std::move(first));
  std::ignore = c.await_forward(std::move(second));
  CHECK(rounds_of(*two[0]) == 1);
  CHECK(rounds_of(*two[1]) == 1);
  auto alone = replicated(1);
  CHECK(rounds_of(*alone[0]) == 0);
}

TEST_CASE_FIXTURE(stage_fixture, "a slave actor's state is read and written by "
                                 "messages, and comes back on release") {
  auto net = replicated(1);
  auto& stage = *net[0];
  CHECK(outcome_of([&] { std::ignore = stage.replica(); }).first
        == errc::invalid_argument);
  auto ok = describe({});
  auto write = [&](std::string name, double_array values) {
    caf::error result;
    c.ask(stage, write_state_atom_v, std::move(name), std::move(values))
        .receive([] {},
                 [&](caf::error& reason) { result = std::move(reason); });
    return describe(result);
  };
  CHECK(write("weight", {2, 3, 4}) == ok);
  CHECK(c.read_state(stage, "weight") == std::vector<double>{2, 3, 4});
  CHECK(c.read_state(stage, "bias.grad") == std::vector<double>{0, 0, 0});
  CHECK(write("weight", {2})
        == "shape_mismatch: layer bn: weight: expected 3 elements, got 1");
  CHECK(write("wait", {2})
        == "invalid_argument: layer bn: name of an array: expected one of "
           "[weight, bias, weight.grad, bias.grad, running_mean, running_var, "
           "num_batches_tracked], got 'wait'");
  CHECK(write("num_batches_tracked", {0x1p53}) == ok);
  CHECK(write("num_batches_tracked", {0x1p53 + 2})
        == "invalid_argument: layer bn: num_batches_tracked: expected a whole "
           "number from 0 to 2^53, got 9007199254740994");
  CHECK(c.read_state(stage, "num_batches_tracked")[0] == 0x1p53);
  release_replicas(net);
  CHECK(read(stage.replica().state(), "weight")
        == std::vector<double>{2, 3, 4});
}
