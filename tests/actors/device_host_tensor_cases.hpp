#pragma once

// The rules for tensors in host memory that are sent to a slave actor on a
// device, as test cases for real devices and for emulated ones: the includer
// has included device_cases.hpp.

#include "tests/actors/device_cases.hpp"

namespace {} // namespace

TEST_CASE_FIXTURE(layer_fixture,
                  "a slave actor on a device copies tensors that "
                  "come in host memory, and answers there") {
  for (const auto& options : all_options)
    for (std::size_t count : {1, 3}) {
      auto net = make_stages(system, options, on_devices(count));
      auto streams = make_streams(on_devices(count));
      auto tolerance = 10 * tolerance_of(options.type);
      caf::scoped_actor self{system};
      auto ask_all = [&](auto ask, auto await) {
        std::vector<decltype(ask(std::size_t{}))> pending;
        for (std::size_t r = 0; r < count; ++r)
          pending.push_back(ask(r));
        std::vector<stage_answer> result;
        for (auto& x : pending) {
          result.push_back(await(std::move(x)));
          REQUIRE(describe(result.back().reason) == describe({}));
        }
        return result;
      };
      for (unsigned step = 0; step < 3; ++step) {
        // In one step all are empty, and in one some are larger than before.
        device_step now{options, std::vector<std::int64_t>(count, 2 * step),
                        step};
        now.expect({1, 1, 1}, {0, 0, 0});
        auto ys = ask_all(
            [&](std::size_t r) {
              return detail::request(self, net[r]->slave(), forward_atom_v,
                                     with_gaps(now.xs[r]));
            },
            [](auto x) { return await_forward(std::move(x)); });
        // In the backward pass each tensor may be in either memory.
        auto dxs = ask_all(
            [&](std::size_t r) {
              auto dy = r == 1 ? placed_tensor{streams[r], now.dys[r]}.share()
                               : with_gaps(now.dys[r]);
              return detail::request(self, net[r]->slave(), backward_atom_v,
                                     ys[r].pass_id, dy);
            },
            [](auto x) { return await_backward(std::move(x)); });
        for (std::size_t r = 0; step != 0 && r < count; ++r) {
          check_near(on_host(ys[r].value), now.ys[r], tolerance);
          auto dx = r == 1
                        ? placed_tensor::fetch(streams[r], dxs[r].value.view())
                        : on_host(dxs[r].value);
          check_near(dx, now.dxs[r], tolerance);
        }
      }
    }
}

TEST_CASE_FIXTURE(layer_fixture, "a tensor in host memory that does not fit a "
                                 "slave actor on a device is refused as on a "
                                 "CPU") {
  auto net = make_stages(system, all_options[0], on_devices(1));
  caf::scoped_actor self{system};
  auto refused = [&](dtype type, std::int64_t channels) {
    tensor x{make_layout(type, std::array<std::int64_t, 2>{4, channels})};
    return describe(await_forward(detail::request(self, net[0]->slave(),
                                                  forward_atom_v, with_gaps(x)))
                        .reason);
  };
  CHECK(refused(dtype::float64, 2)
        == "shape_mismatch: layer bn: forward: x: expected 3 channels, got [N, "
           "C, S] = [4, 2, 1]");
  CHECK(refused(dtype::float32, 3)
        == "dtype_mismatch: layer bn: forward: x: expected float64, got "
           "float32");
  CHECK(refused(dtype::float64, 3) == describe({}));
  auto refused_dy = [&](dtype type, std::int64_t samples) {
    tensor x{make_layout(dtype::float64, std::array<std::int64_t, 2>{4, 3})};
    auto y = await_forward(
        detail::request(self, net[0]->slave(), forward_atom_v, with_gaps(x)));
    tensor dy{make_layout(type, std::array<std::int64_t, 2>{samples, 3})};
    return describe(
        await_backward(detail::request(self, net[0]->slave(), backward_atom_v,
                                       y.pass_id, with_gaps(dy)))
            .reason);
  };
  CHECK(refused_dy(dtype::float32, 4)
        == "dtype_mismatch: layer bn: backward: dy: expected float64, got "
           "float32");
  CHECK(refused_dy(dtype::float64, 5)
        == "shape_mismatch: layer bn: backward: dy: expected the layout of x, "
           "[N, C, S] = [4, 3, 1] channels_first, got [5, 3, 1] "
           "channels_first");
  CHECK(refused_dy(dtype::float64, 4) == describe({}));
}
