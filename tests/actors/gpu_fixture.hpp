#pragma once

#include "tests/actors/device_support.hpp"
#include "tests/actors/wire.hpp"
#include "tests/kernels/emulated_devices.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::test {

using gpus = syncnorm::testing::emulated_devices;
using faults = std::vector<std::string>;

/// Two emulated devices of a test's own: declared before the system, so that
/// every actor has released them before they end.
struct gpu_fixture {
  gpus devices{2};
  layer_fixture base;
  caf::actor_system& system = base.system;

  static device gpu(int index) {
    return {device_type::cuda, index};
  }

  /// A layer's options on device `index`, with a stream of its own there.
  batch_norm_options options_on(int index) {
    auto result = all_options[0];
    result.where = gpu(index);
    result.stream = device_stream::make(devices, gpu(index));
    return result;
  }

  /// Stages on devices 0, 1, 0, 1, ..., replicated.
  stages make_stages(std::size_t count, batch_norm_options options) {
    batch_norm_stage model{system, std::move(options)};
    stages result;
    for (std::size_t r = 0; r < count; ++r)
      result.push_back(
          std::make_unique<batch_norm_stage>(model.clone_to(gpu(r % 2))));
    execute_replication_callbacks(result);
    return result;
  }

  placed_tensor place(int index, const tensor& x) {
    return {device_stream::make(devices, gpu(index)), x};
  }

  /// Waits until each of `net` has enqueued its first pass.
  void await_first_pass(const stages& net) {
    caf::scoped_actor self{system};
    for (const auto& stage : net)
      for (double batches = 0; batches == 0;)
        detail::request(self, stage->slave(), read_state_atom_v,
                        std::string{"num_batches_tracked"})
            .receive([&](const double_array& n) { batches = n[0]; },
                     [](const caf::error& reason) { FAIL(describe(reason)); });
  }

  ~gpu_fixture() {
    devices.go();
    devices.drain();
    for (const auto& fault : devices.faults())
      FAIL_CHECK(fault);
  }
};

inline std::vector<std::byte> bytes_of(const device_stream& stream,
                                       const shared_tensor& x) {
  return placed_tensor::fetch(stream, x.view()).bytes;
}

} // namespace syncnorm::test
