#pragma once

// The rules for online standardization on devices, as test cases for real ones
// and for emulated ones: the includer has included device_cases.hpp.

#include "tests/actors/device_cases.hpp"

namespace {

/// What copies on `where` have seen and learned, together with the truth.
class online_run {
public:
  online_run(caf::actor_system& system, batch_norm_options options,
             const std::vector<device>& where)
      : options_{std::move(options)},
        streams_{make_streams(where)},
        copies_{make_layers(system, options_, where, streams_)} {}

  /// Batches of 0, 1, 2, ... samples per copy, and in later steps of one more.
  void learn(unsigned steps) {
    for (unsigned step = 0; step < steps; ++step) {
      std::vector<std::int64_t> samples;
      for (std::size_t r = 0; r < copies_.size(); ++r)
        samples.push_back(std::int64_t(r + (step > 0 ? 1 : 0)));
      device_step now{options_, samples, step};
      seen_.insert(seen_.end(), now.xs.begin(), now.xs.end());
      auto got = run(now.xs, now.dys);
      auto want = truth();
      if (want.count == 0)
        continue;
      check(now.xs, got.y, [&](auto c, double x) { return want.y(c, x); });
      check(now.dys, got.dx,
            [&](auto c, double dy) { return dy * want.inv_std[c]; });
    }
  }

  /// One batch in evaluation mode, then training mode as before.
  void evaluate() {
    set_training(false);
    device_step now{options_, std::vector<std::int64_t>(copies_.size(), 2), 9};
    auto got = run(now.xs, now.dys);
    auto want = truth();
    check(now.xs, got.y, [&](auto c, double x) {
      if (want.count == 0)
        return x
               / std::sqrt(options_.mode == eps_mode::plus ? 1 + options_.eps
                                                           : 1);
      return want.y(c, x);
    });
    set_training(true);
  }

  void check_state(double batches) {
    auto tolerance = tolerance_of(options_.type);
    auto want = truth();
    for (auto& copy : copies_) {
      auto state = copy->replica().state();
      CHECK(read(state, "num_batches_tracked")[0] == batches);
      CHECK(read(state, "num_elements_tracked")[0] == want.count);
      check_near(read(state, "running_mean"), want.mean, tolerance);
      auto var = read(state, "running_m2");
      for (auto& x : var)
        x /= double(want.count);
      check_near(var, want.var, tolerance);
    }
  }

private:
  struct outputs {
    std::vector<tensor> y, dx;
  };

  outputs run(const std::vector<tensor>& xs, const std::vector<tensor>& dys) {
    outputs result{xs, xs};
    run_all(copies_.size(), [&](std::size_t r) {
      placed_tensor x{streams_[r], xs[r]}, dy{streams_[r], dys[r]},
          out{streams_[r], xs[r]};
      auto tape = copies_[r]->forward(x.view(), out.view());
      result.y[r] = out.read();
      copies_[r]->backward(dy.view(), x.view(), tape, out.view());
      result.dx[r] = out.read();
    });
    return result;
  }

  [[nodiscard]] reference truth() const {
    reference result{options_.eps, options_.mode, {1, 1, 1}, {0, 0, 0}};
    result.forward(seen_);
    return result;
  }

  template <class F>
  void check(std::vector<tensor> want, const std::vector<tensor>& got, F f) {
    reference::for_each(want, [&](auto c, auto r, auto i) {
      want[r].set(i, f(c, want[r].get(i)));
    });
    for (std::size_t r = 0; r < want.size(); ++r)
      check_near(got[r], want[r], 10 * tolerance_of(options_.type));
  }

  void set_training(bool on) {
    for (auto& copy : copies_)
      copy->replica().train(on);
  }

  batch_norm_options options_;
  std::vector<device_stream> streams_;
  layers copies_;
  std::vector<tensor> seen_;
};

batch_norm_options online_on_devices(dtype type, eps_mode mode) {
  return {.name = "bn",
          .channels = 3,
          .type = type,
          .eps = 1e-3,
          .mode = mode,
          .online = true};
}

} // namespace

TEST_CASE_FIXTURE(layer_fixture, "online, copies on devices use the statistics "
                                 "of everything that all copies have seen, "
                                 "CPUs among them or not") {
  device cpu;
  auto gpu = on_devices(3);
  const std::vector<std::vector<device>> placements{
      {gpu[0]}, {gpu[0], gpu[1], gpu[2]}, {cpu, gpu[0]}, {gpu[0], cpu, gpu[1]}};
  for (auto type : {dtype::float32, dtype::float64})
    for (auto mode : {eps_mode::plus, eps_mode::clamp})
      for (const auto& where : placements) {
        online_run run{system, online_on_devices(type, mode), where};
        run.evaluate();
        run.learn(2);
        run.evaluate();
        run.learn(2);
        run.check_state(where.size() == 1 ? 2 : 4);
      }
}

TEST_CASE_FIXTURE(layer_fixture, "online, a slave actor's statistics on a "
                                 "device are read and written by messages, and "
                                 "no pass is kept for backward") {
  auto options = online_on_devices(dtype::float32, eps_mode::plus);
  auto net = make_stages(system, options, on_devices(1));
  caf::scoped_actor self{system};
  using values = std::vector<double>;
  auto read_array = [&](const std::string& name) {
    values result;
    detail::request(self, net[0]->slave(), read_state_atom_v, name)
        .receive(
            [&](const double_array& x) { result.assign(x.begin(), x.end()); },
            [&](const caf::error& reason) { FAIL(describe(reason)); });
    return result;
  };
  auto write_array = [&](std::string name, double_array x) {
    std::string result;
    detail::request(self, net[0]->slave(), write_state_atom_v, std::move(name),
                    std::move(x))
        .receive([] {}, [&](const caf::error& why) { result = describe(why); });
    return result;
  };
  // Mean and M2 that no float32 can hold.
  const values mean{1 + 0x1p-40, 2, 3};
  CHECK(write_array("running_mean", {mean[0], 2, 3}).empty());
  CHECK(write_array("running_m2", {4, 5 + 0x1p-40, 6}).empty());
  CHECK(write_array("num_elements_tracked", {12}).empty());
  CHECK(contains(write_array("num_elements_tracked", {0.5}),
                 "expected a whole number from 0 to 2^53"));
  CHECK(contains(write_array("running_m2", {1}),
                 "running_m2: expected 3 elements, got 1"));
  CHECK(read_array("running_mean") == mean);
  CHECK(read_array("running_m2") == values{4, 5 + 0x1p-40, 6});
  CHECK(read_array("num_elements_tracked") == values{12});
  device_step now{options, {2}, 1};
  auto streams = make_streams(on_devices(1));
  auto got = await_forward(
      detail::request(self, net[0]->slave(), forward_atom_v,
                      placed_tensor{streams[0], now.xs[0]}.share()));
  REQUIRE(describe(got.reason) == describe({}));
  CHECK(got.pass_id == 0);
  CHECK(read_array("num_elements_tracked") == values{24});
  release_replicas(net);
  auto state = net[0]->replica().state();
  CHECK(read(state, "num_elements_tracked") == values{24});
  auto there = net[0]->clone_to({});
  CHECK(read(there.replica().state(), "running_m2")
        == read(state, "running_m2"));
}
