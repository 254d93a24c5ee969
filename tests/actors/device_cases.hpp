#pragma once

// The rules for copies on devices, as test cases for real ones and for emulated
// ones: the includer defines `device_runtime& runtime_under_test()` and
// `std::vector<device> places()`, devices that copies are spread over.

#include "syncnorm/batch_norm_layer.hpp"
#include "syncnorm/batch_norm_stage.hpp"
#include "tests/actors/device_support.hpp"
#include "tests/actors/device_tensors.hpp"
#include "tests/actors/layer_copies.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace {

using namespace syncnorm;
using namespace syncnorm::test;

/// A stream on each device, none for a CPU.
std::vector<device_stream> make_streams(const std::vector<device>& where) {
  std::vector<device_stream> result;
  for (const auto& x : where)
    result.push_back(x.type == device_type::cpu
                         ? device_stream{}
                         : device_stream::make(runtime_under_test(), x));
  return result;
}

/// `count` places on the CUDA devices, in turn.
std::vector<device> on_devices(std::size_t count) {
  std::vector<device> result;
  for (std::size_t i = 0; i < count; ++i)
    result.push_back(places()[i % places().size()]);
  return result;
}

/// A layer on each of `where`, replicated.
layers make_layers(caf::actor_system& system, batch_norm_options options,
                   const std::vector<device>& where,
                   const std::vector<device_stream>& streams) {
  options.where = where[0];
  options.stream = streams[0];
  layers result;
  result.push_back(std::make_unique<batch_norm_layer>(system, options));
  for (std::size_t r = 1; r < where.size(); ++r)
    result.push_back(std::make_unique<batch_norm_layer>(
        result[0]->clone_to(where[r], streams[r])));
  execute_replication_callbacks(result);
  return result;
}

/// Checks that steps of layers on `where` agree with one device on the whole
/// batch.
void check_layers(caf::actor_system& system, const batch_norm_options& options,
                  const std::vector<device>& where) {
  auto streams = make_streams(where);
  auto copies = make_layers(system, options, where, streams);
  auto tolerance = tolerance_of(options.type);
  std::vector<double> weight{1, 0.5, 2}, bias{0, 1, -1};
  for (auto& copy : copies) {
    write(copy->replica().state(), "weight", weight);
    write(copy->replica().state(), "bias", bias);
  }
  std::vector<double> running_mean(3, 0), running_var(3, 1);
  std::vector<std::vector<double>> gradients(where.size(),
                                             std::vector<double>(3));
  for (unsigned step = 1; step <= 3; ++step) {
    std::vector<std::int64_t> samples;
    for (std::size_t r = 0; r < where.size(); ++r)
      samples.push_back(r == 1 && step == 2 ? 0 : std::int64_t(r + 2));
    device_step now{options, samples, step};
    now.expect(weight, bias);
    std::vector<tensor> y(where.size()), dx(where.size());
    run_all(where.size(), [&](std::size_t r) {
      placed_tensor x{streams[r], now.xs[r]}, dy{streams[r], now.dys[r]},
          out{streams[r], now.xs[r]};
      auto tape = copies[r]->forward(x.view(), out.view());
      y[r] = out.read();
      copies[r]->backward(dy.view(), x.view(), tape, out.view());
      dx[r] = out.read();
    });
    auto n = double(now.truth.count);
    auto m = options.momentum.value_or(1.0 / step);
    for (std::size_t c = 0; c < 3; ++c) {
      running_mean[c] += m * (now.truth.mean[c] - running_mean[c]);
      running_var[c] += m * (now.truth.var[c] * n / (n - 1) - running_var[c]);
    }
    for (std::size_t r = 0; r < where.size(); ++r) {
      check_near(y[r], now.ys[r], tolerance);
      check_near(dx[r], now.dxs[r], 10 * tolerance);
      auto mine = now.weight_gradient(r);
      for (std::size_t c = 0; c < 3; ++c)
        gradients[r][c] += mine[c];
      check_near(read(copies[r]->replica().gradients(), "weight"), gradients[r],
                 10 * tolerance);
      auto state = copies[r]->replica().state();
      check_near(read(state, "running_mean"), running_mean, tolerance);
      check_near(read(state, "running_var"), running_var, tolerance);
      CHECK(read(state, "num_batches_tracked")[0] == step);
    }
  }
  for (auto& copy : copies)
    copy->replica().train(false);
  device_step now{options, std::vector<std::int64_t>(where.size(), 2), 9};
  run_all(where.size(), [&](std::size_t r) {
    placed_tensor x{streams[r], now.xs[r]}, out{streams[r], now.xs[r]};
    auto tape = copies[r]->forward(x.view(), out.view());
    auto y = out.read();
    auto want = now.xs[r];
    reference::for_each({want}, [&](auto c, auto, auto i) {
      auto var = options.mode == eps_mode::plus
                     ? running_var[c] + options.eps
                     : std::max(running_var[c], options.eps);
      want.set(i,
               (now.xs[r].get(i) - running_mean[c]) / std::sqrt(var) * weight[c]
                   + bias[c]);
    });
    check_near(y, want, 10 * tolerance);
    copies[r]->backward(x.view(), x.view(), tape, out.view());
    auto dx = out.read();
    reference::for_each({want}, [&](auto c, auto, auto i) {
      auto var = options.mode == eps_mode::plus
                     ? running_var[c] + options.eps
                     : std::max(running_var[c], options.eps);
      want.set(i, now.xs[r].get(i) / std::sqrt(var) * weight[c]);
    });
    check_near(dx, want, 10 * tolerance);
  });
}

/// A stage on each of `where`, replicated.
stages make_stages(caf::actor_system& system, batch_norm_options options,
                   const std::vector<device>& where) {
  // The others use the runtime of the first that has one.
  options.where = places()[0];
  options.stream = device_stream::make(runtime_under_test(), places()[0]);
  batch_norm_stage model{system, options};
  stages result;
  for (const auto& x : where)
    result.push_back(std::make_unique<batch_norm_stage>(model.clone_to(x)));
  execute_replication_callbacks(result);
  return result;
}

/// Checks micro-batches through stages on `where`, all in flight at once.
void check_stages(caf::actor_system& system, const batch_norm_options& options,
                  const std::vector<device>& where) {
  auto net = make_stages(system, options, where);
  auto streams = make_streams(where);
  auto tolerance = 10 * tolerance_of(options.type);
  caf::scoped_actor self{system};
  std::vector<device_step> steps;
  using forward_type = decltype(detail::request(
      self, net[0]->slave(), forward_atom_v, shared_tensor{}));
  using backward_type =
      decltype(detail::request(self, net[0]->slave(), backward_atom_v,
                               std::uint64_t{}, shared_tensor{}));
  std::vector<std::vector<forward_type>> forwards(3);
  for (unsigned m = 0; m < 3; ++m) {
    steps.emplace_back(options, std::vector<std::int64_t>(where.size(), m + 1),
                       m);
    steps[m].expect({1, 1, 1}, {0, 0, 0});
    for (std::size_t r = 0; r < where.size(); ++r)
      forwards[m].push_back(
          detail::request(self, net[r]->slave(), forward_atom_v,
                          placed_tensor{streams[r], steps[m].xs[r]}.share()));
  }
  std::vector<std::vector<std::uint64_t>> pass_ids(3);
  for (unsigned m = 0; m < 3; ++m)
    for (std::size_t r = 0; r < where.size(); ++r) {
      auto got = await_forward(std::move(forwards[m][r]));
      REQUIRE(describe(got.reason) == describe({}));
      check_near(placed_tensor::fetch(streams[r], got.value.view()),
                 steps[m].ys[r], tolerance);
      pass_ids[m].push_back(got.pass_id);
    }
  for (unsigned m = 3; m-- > 0;) {
    std::vector<backward_type> backwards;
    for (std::size_t r = 0; r < where.size(); ++r)
      backwards.push_back(detail::request(
          self, net[r]->slave(), backward_atom_v, pass_ids[m][r],
          placed_tensor{streams[r], steps[m].dys[r]}.share()));
    for (std::size_t r = 0; r < where.size(); ++r) {
      auto got = await_backward(std::move(backwards[r]));
      REQUIRE(describe(got.reason) == describe({}));
      check_near(placed_tensor::fetch(streams[r], got.value.view()),
                 steps[m].dxs[r], tolerance);
    }
  }
}

} // namespace

TEST_CASE_FIXTURE(layer_fixture, "copies on devices agree with one device on "
                                 "the whole batch, also an empty one") {
  for (const auto& options : all_options)
    for (std::size_t count : {1, 2, 4})
      check_layers(system, options, on_devices(count));
}

TEST_CASE_FIXTURE(layer_fixture, "copies on CPUs and on devices mix, whoever "
                                 "the owner is") {
  device cpu;
  auto gpu = on_devices(3);
  for (const auto& options : all_options)
    for (const auto& where :
         std::vector<std::vector<device>>{{cpu, gpu[0], gpu[1]},
                                          {gpu[0], cpu, gpu[1]},
                                          {gpu[0], gpu[1], gpu[2], cpu}})
      check_layers(system, options, where);
}

TEST_CASE_FIXTURE(layer_fixture, "slave actors on devices answer when the "
                                 "stream has done its work") {
  for (const auto& options : all_options) {
    check_stages(system, options, on_devices(1));
    check_stages(system, options, on_devices(4));
  }
}

TEST_CASE_FIXTURE(layer_fixture, "slave actors on CPUs and on devices mix") {
  device cpu;
  auto gpu = on_devices(2);
  for (const auto& options : all_options) {
    check_stages(system, options, {cpu, gpu[0], gpu[1]});
    check_stages(system, options, {gpu[0], gpu[1], cpu});
  }
}

TEST_CASE_FIXTURE(layer_fixture, "a slave actor's state on a device is read "
                                 "and written by messages, and comes back on "
                                 "release") {
  auto net = make_stages(system, all_options[0], on_devices(1));
  caf::scoped_actor self{system};
  auto read_array = [&](const std::string& name) {
    std::vector<double> result;
    detail::request(self, net[0]->slave(), read_state_atom_v, name)
        .receive(
            [&](const double_array& x) { result.assign(x.begin(), x.end()); },
            [&](const caf::error& reason) {
              CHECK(contains(describe(reason),
                             "num_batches_tracked], got '" + name + "'"));
            });
    return result;
  };
  auto write_array = [&](std::string name, double_array values) {
    caf::error result;
    detail::request(self, net[0]->slave(), write_state_atom_v, std::move(name),
                    std::move(values))
        .receive([] {},
                 [&](caf::error& reason) { result = std::move(reason); });
    return describe(result);
  };
  auto ok = describe({});
  using values = std::vector<double>;
  CHECK(read_array("weight") == values{1, 1, 1});
  CHECK(read_array("running_var") == values{1, 1, 1});
  CHECK(read_array("bias.grad") == values{0, 0, 0});
  CHECK(read_array("num_batches_tracked") == values{0});
  CHECK(read_array("wait") == values{});
  CHECK(write_array("weight", {2, 3, 4}) == ok);
  CHECK(write_array("running_var", {5, 6, 7}) == ok);
  CHECK(write_array("weight.grad", {8, 9, 10}) == ok);
  CHECK(write_array("num_batches_tracked", {11}) == ok);
  CHECK(write_array("bias", {2})
        == "shape_mismatch: layer bn: bias: expected 3 elements, got 1");
  CHECK(
      write_array("num_batches_tracked", {3, -1})
      == "shape_mismatch: layer bn: num_batches_tracked: expected 1 elements, "
         "got 2");
  CHECK(write_array("num_batches_tracked", {-1})
        == "invalid_argument: layer bn: num_batches_tracked: expected a whole "
           "number from 0 to 2^53, got -1");
  CHECK(write_array("wait", {2})
        == "invalid_argument: layer bn: name of an array: expected one of "
           "[weight, bias, weight.grad, bias.grad, running_mean, running_var, "
           "num_batches_tracked], got 'wait'");
  CHECK(read_array("weight") == values{2, 3, 4});
  CHECK(read_array("running_mean") == values{0, 0, 0});
  CHECK(read_array("running_var") == values{5, 6, 7});
  CHECK(read_array("num_batches_tracked") == values{11});
  release_replicas(net);
  auto& replica = net[0]->replica();
  CHECK(read(replica.state(), "weight") == values{2, 3, 4});
  CHECK(read(replica.state(), "running_var") == values{5, 6, 7});
  CHECK(read(replica.gradients(), "weight") == values{8, 9, 10});
  replica.zero_gradients();
  CHECK(read(replica.gradients(), "weight") == values{0, 0, 0});
  auto there = net[0]->clone_to({});
  CHECK(read(there.replica().state(), "running_var") == values{5, 6, 7});
  CHECK(read(there.replica().state(), "num_batches_tracked") == values{11});
}
