// Nobody waits for a device but those who must.

#include "tests/actors/gpu_fixture.hpp"

#include <algorithm>
#include <thread>

using namespace syncnorm;
using namespace syncnorm::test;

TEST_CASE_FIXTURE(gpu_fixture, "no worker of CAF's waits for a device: slave "
                               "actors answer other messages meanwhile") {
  auto copies = 4 * std::max(4U, std::thread::hardware_concurrency());
  auto net = make_stages(copies, options_on(0));
  device_step now{all_options[0], std::vector<std::int64_t>(copies, 2), 1};
  now.expect({1, 1, 1}, {0, 0, 0});
  std::vector<placed_tensor> x;
  for (std::size_t r = 0; r < copies; ++r)
    x.push_back(place(int(r % 2), now.xs[r]));
  devices.hold();
  caf::scoped_actor self{system};
  std::vector<decltype(detail::request(self, net[0]->slave(), forward_atom_v,
                                       shared_tensor{}))>
      pending;
  for (std::size_t r = 0; r < copies; ++r)
    pending.push_back(
        detail::request(self, net[r]->slave(), forward_atom_v, x[r].share()));
  for (auto& stage : net)
    detail::request(self, stage->slave(), read_state_atom_v,
                    std::string{"num_batches_tracked"})
        .receive([](const double_array&) {},
                 [](const caf::error& reason) { FAIL(describe(reason)); });
  devices.go();
  for (std::size_t r = 0; r < copies; ++r) {
    auto got = await_forward(std::move(pending[r]));
    REQUIRE(describe(got.reason) == describe({}));
    check_near(placed_tensor::fetch(device_stream::make(devices, gpu(r % 2)),
                                    got.value.view()),
               now.ys[r], 1e-10);
  }
}

namespace {

/// More copies than CAF has workers, on devices that have not begun, asked
/// with tensors in host memory.
struct host_tensors_on_their_way : gpu_fixture {
  using pending_type = decltype(detail::request(
      std::declval<caf::scoped_actor&>(),
      std::declval<batch_norm_slave_actor>(), forward_atom_v, shared_tensor{}));

  std::size_t copies = 4 * std::max(4U, std::thread::hardware_concurrency());
  device_step now{all_options[0], std::vector<std::int64_t>(copies, 2), 1};
  stages net = make_stages(copies, options_on(0));
  caf::scoped_actor self{system};
  std::vector<pending_type> pending;

  host_tensors_on_their_way() {
    now.expect({1, 1, 1}, {0, 0, 0});
    devices.hold();
    for (std::size_t r = 0; r < copies; ++r)
      pending.push_back(detail::request(self, net[r]->slave(), forward_atom_v,
                                        with_gaps(now.xs[r])));
    // Answered by slaves that have enqueued it all.
    await_first_pass(net);
  }
};

} // namespace

TEST_CASE_FIXTURE(host_tensors_on_their_way,
                  "no worker of CAF's waits for a device while tensors go "
                  "there and back") {
  devices.go();
  for (std::size_t r = 0; r < copies; ++r) {
    auto got = await_forward(std::move(pending[r]));
    REQUIRE(describe(got.reason) == describe({}));
    check_near(on_host(got.value), now.ys[r], 1e-10);
  }
}

TEST_CASE_FIXTURE(host_tensors_on_their_way,
                  "a copy that is released while a tensor goes there and back "
                  "keeps its memory until the device has done it") {
  release_replicas(net);
  for (auto& x : pending)
    CHECK(code_of(await_forward(std::move(x)).reason)
          == errc::participant_down);
  devices.go();
  devices.drain();
  CHECK(devices.faults().empty());
}

TEST_CASE_FIXTURE(host_tensors_on_their_way,
                  "a device that fails while a tensor goes there and back is "
                  "an error for its request") {
  devices.break_device(0);
  devices.break_device(1);
  devices.go();
  for (auto& x : pending)
    CHECK(code_of(await_forward(std::move(x)).reason) == errc::device_failure);
}

TEST_CASE_FIXTURE(gpu_fixture, "waiting for a device ends at the deadline") {
  auto options = options_on(0);
  options.deadline = std::chrono::milliseconds{50};
  auto net = make_stages(1, options);
  device_step now{all_options[0], {2}, 1};
  auto x = place(0, now.xs[0]);
  devices.hold();
  caf::scoped_actor self{system};
  auto reason = await_forward(detail::request(self, net[0]->slave(),
                                              forward_atom_v, x.share()))
                    .reason;
  CHECK(describe(reason)
        == "deadline_exceeded: layer bn: replica 0: waited 0.05 s for a device "
           "to finish");
  devices.go();
}
