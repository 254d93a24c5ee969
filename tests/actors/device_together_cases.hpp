#pragma once

// The rules for asking copies on devices for several batches together, as test
// cases for real devices and for emulated ones.

#include "tests/actors/device_cases.hpp"
#include "tests/actors/together.hpp"

namespace {

/// Asks copies on `where` for the same batches one by one and together.
void check_together(caf::actor_system& system, batch_norm_options options,
                    const std::vector<device>& where) {
  auto xs = make_parts(where.size(), 10, options.type);
  slaves first{system, make_stages(system, options, where)};
  slaves second{system, make_stages(system, options, where)};
  auto want = one_by_one(first, xs);
  auto got = together(second, xs);
  CHECK(got.pass_ids == want.pass_ids);
  for (std::size_t i = 0; i < want.ys.size(); ++i)
    CHECK(same_bits(got.ys[i], want.ys[i]));
  auto want_dx = backward(first, xs, want);
  auto got_dx = backward(second, xs, got);
  for (std::size_t i = 0; i < want_dx.size(); ++i)
    CHECK(same_bits(got_dx[i], want_dx[i]));
  CHECK(second.state() == first.state());
}

} // namespace

TEST_CASE_FIXTURE(layer_fixture, "batches asked for together on devices come "
                                 "out as those asked for one by one, bit for "
                                 "bit, and leave the same state and pass ids") {
  device cpu;
  auto gpu = on_devices(3);
  for (auto type : {dtype::float64, dtype::float32, dtype::bfloat16})
    for (auto online : {true, false})
      for (const auto& where :
           std::vector<std::vector<device>>{{gpu[0]},
                                            {gpu[0], gpu[1]},
                                            {gpu[0], gpu[1], gpu[2]},
                                            {cpu, gpu[0], gpu[1]},
                                            {gpu[0], cpu},
                                            on_devices(5)}) {
        CAPTURE(to_string(type));
        CAPTURE(online);
        CAPTURE(where.size());
        // Four of the five are behind relays.
        check_together(system,
                       {.name = "bn",
                        .channels = 3,
                        .type = type,
                        .online = online,
                        .fan_in = 3},
                       where);
      }
}
