// A replica on a device, which the host emulates, without a master: what is
// done between the halves of its passes, and by a copy of it.

#include "tests/actors/device_tensors.hpp"
#include "tests/actors/layer_copies.hpp"
#include "tests/kernels/emulated_devices.hpp"

#include "syncnorm/batch_norm_master.hpp"
#include "syncnorm/batch_norm_replica.hpp"

#include <array>
#include <functional>
#include <random>
#include <tuple>
#include <vector>

namespace syncnorm::test {

namespace {

/// A replica on an emulated device, and the tensors of its passes.
struct device_fixture {
  testing::emulated_devices devices{1};
  batch_norm_options options = on_device();
  batch_norm_replica replica{options};
  placed_tensor x = make_tensor(5);
  placed_tensor dy = make_tensor(7);
  placed_tensor y = make_tensor(0);

  ~device_fixture() {
    CHECK(devices.faults().empty());
  }

  batch_norm_options on_device() {
    batch_norm_options result{.name = "bn", .channels = 3};
    result.type = dtype::float64;
    result.where = {device_type::cuda, 0};
    result.stream = device_stream::make(devices, result.where);
    return result;
  }

  placed_tensor make_tensor(unsigned seed) const {
    tensor values{
        make_layout(dtype::float64, std::array<std::int64_t, 2>{5, 3})};
    std::mt19937 random{seed};
    fill(values, random, 10, 3);
    return {options.stream, values};
  }

  using look = std::function<void(int)>;
  static constexpr int places = 5;

  /// A pass forward and back, and another forward, with `look(i)` at the i-th
  /// place between and behind halves.
  void run(const look& at_place) {
    auto message = replica.begin_forward(x.view(), y.view());
    at_place(0);
    auto tape = replica.end_forward(merge_round(std::move(message)), x.view(),
                                    y.view());
    at_place(1);
    message = replica.begin_backward(dy.view(), x.view(), tape, y.view());
    at_place(2);
    replica.end_backward(merge_round(std::move(message)), dy.view(), x.view(),
                         tape, y.view());
    at_place(3);
    message = replica.measure(dy.view());
    at_place(4);
    replica.add_update(message);
    std::ignore = replica.accept(merge_round(std::move(message)));
  }

  std::vector<double> state() {
    std::vector<double> result;
    for (const auto& arrays : {replica.state(), replica.gradients()})
      for (const auto& array : arrays)
        for (auto value : read({array}, array.name))
          result.push_back(value);
    return result;
  }
};

TEST_CASE("who looks at the state of a replica on a device between the halves "
          "of its passes changes nothing") {
  device_fixture plain;
  plain.run([](int) {});
  for (int place = 0; place < device_fixture::places; ++place) {
    CAPTURE(place);
    device_fixture watched;
    watched.run([&](int here) {
      if (here == place)
        std::ignore = watched.state();
    });
    CHECK(watched.state() == plain.state());
  }
}

TEST_CASE("what is written to the state of a replica on a device between the "
          "halves of its passes counts") {
  auto state_with = [](const char* name, int place) {
    device_fixture written;
    auto at_place = [&](int here) {
      if (here == place)
        write(written.replica.state(), name, {2, 3, 4});
    };
    at_place(-1);
    written.run(at_place);
    return written.state();
  };
  auto whole = state_with("weight", -1);
  for (int place = 0; place < device_fixture::places; ++place) {
    CAPTURE(place);
    CHECK(state_with("weight", place) == whole);
  }
  // The second pass learns from there on.
  CHECK(state_with("running_mean", 4) == state_with("running_mean", 3));
}

TEST_CASE_FIXTURE(device_fixture, "a copy of a replica on a device has a "
                                  "workspace of its own") {
  std::ignore = replica.measure(x.view());
  auto copy = replica;
  std::ignore = copy.measure(x.view());
  std::ignore = replica.measure(x.view());
  auto used = devices.workspaces();
  REQUIRE(used.size() == 3);
  CHECK(used[0] == used[2]);
  CHECK(used[0] != used[1]);
}

TEST_CASE_FIXTURE(device_fixture, "a replica that becomes another one uses no "
                                  "workspace of the former stream") {
  std::ignore = replica.measure(x.view());
  auto other = options;
  other.stream = device_stream::make(devices, other.where);
  replica = batch_norm_replica{other};
  std::ignore = replica.measure(x.view());
  auto used = devices.workspaces();
  REQUIRE(used.size() == 2);
  CHECK(used[0] != used[1]);
}

} // namespace

} // namespace syncnorm::test
