// Memory that a device still needs, and who keeps it.

#include "tests/actors/gpu_fixture.hpp"

#include "syncnorm/detail/host_copy.hpp"

#include <array>
#include <new>

using namespace syncnorm;
using namespace syncnorm::test;

TEST_CASE_FIXTURE(gpu_fixture, "a copy that dies with events outstanding "
                               "answers at once, and its memory outlives its "
                               "kernels") {
  auto net = make_stages(3, options_on(0));
  device_step now{all_options[0], {2, 2, 2}, 1};
  std::vector<std::optional<placed_tensor>> x;
  for (std::size_t r = 0; r < 3; ++r)
    x.emplace_back(place(int(r % 2), now.xs[r]));
  devices.hold();
  caf::scoped_actor self{system};
  std::vector<decltype(detail::request(self, net[0]->slave(), forward_atom_v,
                                       shared_tensor{}))>
      pending;
  for (std::size_t r = 0; r < 3; ++r)
    pending.push_back(
        detail::request(self, net[r]->slave(), forward_atom_v, x[r]->share()));
  x.clear();
  net[1]->on_data_parallel_release();
  auto dead = await_forward(std::move(pending[1])).reason;
  CHECK(dead != caf::none);
  release_replicas(net);
  for (auto r : {0, 2})
    CHECK(await_forward(std::move(pending[std::size_t(r)])).reason
          != caf::none);
  devices.go();
  // The same modules work again.
  execute_replication_callbacks(net);
  now.expect({1, 1, 1}, {0, 0, 0});
  pending.clear();
  for (std::size_t r = 0; r < 3; ++r)
    pending.push_back(detail::request(self, net[r]->slave(), forward_atom_v,
                                      place(int(r % 2), now.xs[r]).share()));
  for (std::size_t r = 0; r < 3; ++r) {
    auto got = await_forward(std::move(pending[r]));
    REQUIRE(describe(got.reason) == describe({}));
    check_near(placed_tensor::fetch(device_stream::make(devices, gpu(r % 2)),
                                    got.value.view()),
               now.ys[r], 1e-10);
  }
}

TEST_CASE_FIXTURE(gpu_fixture, "a pass whose device is not done when the copy "
                               "is released is answered that the copy is "
                               "gone") {
  auto options = options_on(0);
  options.deadline = std::chrono::hours{1};
  auto net = make_stages(1, options);
  device_step now{all_options[0], {2}, 1};
  auto x = place(0, now.xs[0]);
  devices.hold();
  caf::scoped_actor self{system};
  auto pending =
      detail::request(self, net[0]->slave(), forward_atom_v, x.share());
  await_first_pass(net);
  release_replicas(net);
  auto reason = await_forward(std::move(pending)).reason;
  CHECK_MESSAGE(code_of(reason) == errc::participant_down, describe(reason));
  devices.go();
}

TEST_CASE_FIXTURE(gpu_fixture, "where there is no memory for y, x is kept as "
                               "long as the kernel that reads it runs") {
  auto net = make_stages(2, options_on(0));
  device_step now{all_options[0], {700, 700}, 1};
  caf::scoped_actor self{system};
  auto x = std::make_optional(place(0, now.xs[0]));
  devices.hold();
  devices.refuse_memory(now.xs[0].bytes.size());
  auto pending =
      detail::request(self, net[0]->slave(), forward_atom_v, x->share());
  x.reset();
  auto reason = await_forward(std::move(pending)).reason;
  CHECK_MESSAGE(code_of(reason) == errc::device_failure, describe(reason));
  CHECK(devices.calls("batch_moments") == 1);
}

TEST_CASE_FIXTURE(gpu_fixture,
                  "where there is no memory for a copy to the host, "
                  "that of the copy before is kept until it is "
                  "done") {
  auto net = make_stages(1, options_on(0));
  device_step now{all_options[0], {700, 900}, 1};
  auto on_host = [](const tensor& x) {
    auto content = std::make_shared<tensor>(x);
    return shared_tensor{content->view(), content};
  };
  caf::scoped_actor self{system};
  devices.hold();
  // The first is for the way to the device.
  devices.refuse_memory(now.xs[1].bytes.size(), true, 1);
  auto reason = caf::error{};
  detail::request(self, net[0]->slave(), forward_atom_v,
                  shared_tensors{{on_host(now.xs[0]), on_host(now.xs[1])}})
      .receive([](const shared_tensors&, std::uint64_t) {},
               [&](caf::error& x) { reason = std::move(x); });
  CHECK_MESSAGE(code_of(reason) == errc::device_failure, describe(reason));
}

TEST_CASE_FIXTURE(gpu_fixture,
                  "memory of a copy whose end nobody learns is kept: the "
                  "device may still read or write it") {
  auto stream = device_stream::make(devices, gpu(0));
  device_array x{stream, dtype::float64, 4};
  x.publish();
  devices.hold();
  devices.refuse_events();
  const std::vector<double> values(4, 1.0);
  detail::upload_memory upload;
  CHECK_THROWS_AS((void) upload.upload(stream, dtype::float64, values),
                  std::bad_alloc);
  CHECK_THROWS_AS((detail::host_copy{stream, std::array{x}}), std::bad_alloc);
}
