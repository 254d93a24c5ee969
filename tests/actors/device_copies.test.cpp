// Copies on devices, which the host emulates.

#include "tests/actors/wire.hpp"
#include "tests/kernels/emulated_devices.hpp"

#include "syncnorm/detail/host_copy.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <thread>
#include <vector>

namespace {

syncnorm::testing::emulated_devices& devices_under_test() {
  static syncnorm::testing::emulated_devices two{2};
  return two;
}

syncnorm::device_runtime& runtime_under_test() {
  return devices_under_test();
}

std::vector<syncnorm::device> places() {
  using syncnorm::device_type;
  return {{device_type::cuda, 0}, {device_type::cuda, 1}};
}

} // namespace

#include "tests/actors/device_cases.hpp"
#include "tests/actors/device_host_tensor_cases.hpp"
#include "tests/actors/device_online_cases.hpp"
#include "tests/actors/device_together_cases.hpp"

namespace {

using gpus = syncnorm::testing::emulated_devices;
using faults = std::vector<std::string>;

/// Two emulated devices of a test's own: declared before the system, so that
/// every actor has let go of them.
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

  /// Until each of `net` has enqueued its first pass.
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

std::vector<std::byte> bytes_of(const device_stream& stream,
                                const shared_tensor& x) {
  return placed_tensor::fetch(stream, x.view()).bytes;
}

} // namespace

TEST_CASE_FIXTURE(gpu_fixture, "a layer's passes are enqueued, statistics and "
                               "all, while the devices have not begun") {
  constexpr std::size_t copies = 4;
  std::vector<device_stream> streams;
  std::vector<device> where;
  for (std::size_t r = 0; r < copies; ++r) {
    where.push_back(gpu(r % 2));
    streams.push_back(device_stream::make(devices, where[r]));
  }
  auto net = make_layers(system, all_options[0], where, streams);
  device_step now{all_options[0], {2, 3, 1, 4}, 1};
  now.expect({1, 1, 1}, {0, 0, 0});
  std::vector<placed_tensor> x, dy, y, dx;
  for (std::size_t r = 0; r < copies; ++r) {
    x.emplace_back(streams[r], now.xs[r]);
    dy.emplace_back(streams[r], now.dys[r]);
    y.emplace_back(streams[r], now.xs[r]);
    dx.emplace_back(streams[r], now.xs[r]);
  }
  auto waits = devices.waits();
  devices.hold();
  for (int pass = 0; pass < 2; ++pass)
    run_all(copies, [&](std::size_t r) {
      auto tape = net[r]->forward(x[r].view(), y[r].view());
      net[r]->backward(dy[r].view(), x[r].view(), tape, dx[r].view());
    });
  CHECK(devices.waits() == waits);
  CHECK(devices.calls("merge_moments") == 2);
  for (std::size_t r = 0; r < copies; ++r)
    CHECK(net[r]->messages_sent() == 4);
  devices.go();
  for (std::size_t r = 0; r < copies; ++r) {
    check_near(y[r].read(), now.ys[r], 1e-10);
    check_near(dx[r].read(), now.dxs[r], 1e-10);
  }
}

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

TEST_CASE_FIXTURE(gpu_fixture, "online, too, passes are enqueued while the "
                               "devices have not begun") {
  auto options = online_on_devices(dtype::float32, eps_mode::plus);
  std::vector<device> where{gpu(0), gpu(1)};
  std::vector<device_stream> streams{device_stream::make(devices, where[0]),
                                     device_stream::make(devices, where[1])};
  auto net = make_layers(system, options, where, streams);
  device_step now{options, {2, 3}, 1};
  now.expect({1, 1, 1}, {0, 0, 0});
  std::vector<placed_tensor> x, y;
  for (std::size_t r = 0; r < 2; ++r) {
    x.emplace_back(streams[r], now.xs[r]);
    y.emplace_back(streams[r], now.xs[r]);
  }
  auto waits = devices.waits();
  devices.hold();
  // The same batch twice has the statistics that it has once.
  for (int pass = 0; pass < 2; ++pass)
    run_all(2, [&](std::size_t r) {
      std::ignore = net[r]->forward(x[r].view(), y[r].view());
    });
  CHECK(devices.waits() == waits);
  devices.go();
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(net[r]->messages_sent() == 2);
    check_near(y[r].read(), now.ys[r], 1e-4);
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

TEST_CASE_FIXTURE(gpu_fixture, "a tensor in host memory that does not fit is "
                               "refused before it is copied to a device") {
  auto net = make_stages(1, options_on(0));
  caf::scoped_actor self{system};
  auto tensor_of = [](std::int64_t samples, std::int64_t channels) {
    return with_gaps(tensor{make_layout(
        dtype::float64, std::array<std::int64_t, 2>{samples, channels})});
  };
  auto forward = [&](std::int64_t channels) {
    return await_forward(detail::request(self, net[0]->slave(), forward_atom_v,
                                         tensor_of(4, channels)));
  };
  auto y = forward(3);
  REQUIRE(describe(y.reason) == describe({}));
  auto copies = devices.calls("copy");
  CHECK(code_of(forward(2).reason) == errc::shape_mismatch);
  auto dx = await_backward(detail::request(
      self, net[0]->slave(), backward_atom_v, y.pass_id, tensor_of(5, 3)));
  CHECK(code_of(dx.reason) == errc::shape_mismatch);
  CHECK(devices.calls("copy") == copies);
}

TEST_CASE_FIXTURE(gpu_fixture, "the order of arrival changes no bit of what "
                               "devices merge") {
  constexpr std::size_t copies = 5;
  device_step now{all_options[1], {1, 2, 3, 4, 5}, 1};
  std::vector<std::vector<std::byte>> first;
  std::vector<std::size_t> order{0, 1, 2, 3, 4};
  std::mt19937 random{1};
  for (int turn = 0; turn < 6; ++turn) {
    auto options = options_on(0);
    options.type = all_options[1].type;
    auto net = make_stages(copies, options);
    caf::scoped_actor self{system};
    std::vector<std::optional<decltype(detail::request(
        self, net[0]->slave(), forward_atom_v, shared_tensor{}))>>
        pending(copies);
    for (auto r : order)
      pending[r] = detail::request(self, net[r]->slave(), forward_atom_v,
                                   place(int(r % 2), now.xs[r]).share());
    std::vector<std::vector<std::byte>> bits;
    for (std::size_t r = 0; r < copies; ++r) {
      auto got = await_forward(std::move(*pending[r]));
      bits.push_back(
          bytes_of(device_stream::make(devices, gpu(r % 2)), got.value));
    }
    if (turn == 0)
      first = bits;
    CHECK(bits == first);
    std::ranges::shuffle(order, random);
  }
}

TEST_CASE_FIXTURE(gpu_fixture, "a mixed round is sent twice, and from then on "
                               "all go by the host") {
  std::vector<device> where{gpu(0), device{}, gpu(1)};
  std::vector<device_stream> streams{device_stream::make(devices, gpu(0)),
                                     device_stream{},
                                     device_stream::make(devices, gpu(1))};
  auto net = make_layers(system, all_options[0], where, streams);
  device_step now{all_options[0], {2, 2, 2}, 1};
  for (std::uint64_t pass = 1; pass <= 3; ++pass) {
    run_all(3, [&](std::size_t r) {
      placed_tensor x{streams[r], now.xs[r]};
      std::ignore = net[r]->forward(x.view(), x.view());
      if (streams[r])
        streams[r].record().synchronize();
    });
    for (auto& layer : net)
      CHECK(layer->messages_sent() == pass + 1);
  }
  CHECK(devices.calls("merge_moments") == 0);
}

TEST_CASE_FIXTURE(gpu_fixture, "a device that fails is an error that names the "
                               "layer and the replica, for each request") {
  auto net = make_stages(2, options_on(0));
  device_step now{all_options[0], {2, 2}, 1};
  auto x0 = place(0, now.xs[0]);
  auto x1 = place(1, now.xs[1]);
  devices.hold();
  caf::scoped_actor self{system};
  auto a = detail::request(self, net[0]->slave(), forward_atom_v, x0.share());
  auto b = detail::request(self, net[1]->slave(), forward_atom_v, x1.share());
  await_first_pass(net);
  devices.break_device(0);
  devices.break_device(1);
  devices.go();
  auto first = await_forward(std::move(a)).reason;
  auto second = await_forward(std::move(b)).reason;
  CHECK(code_of(first) == errc::device_failure);
  CHECK(contains(describe(first), "layer bn: replica 0: "));
  CHECK(contains(describe(first), "cuda:0 has failed"));
  CHECK(code_of(second) == errc::device_failure);
  CHECK(contains(describe(second), "layer bn: replica 1: "));
}

TEST_CASE_FIXTURE(gpu_fixture, "the others learn in their next round of a "
                               "device that failed at the end of the last") {
  auto net = make_stages(2, options_on(0));
  device_step now{all_options[0], {2, 2}, 1};
  auto x0 = place(0, now.xs[0]);
  auto x1 = place(1, now.xs[1]);
  devices.hold();
  caf::scoped_actor self{system};
  auto a = detail::request(self, net[0]->slave(), forward_atom_v, x0.share());
  auto b = detail::request(self, net[1]->slave(), forward_atom_v, x1.share());
  await_first_pass(net);
  devices.break_device(1);
  devices.go();
  CHECK(code_of(await_forward(std::move(b)).reason) == errc::device_failure);
  std::ignore = await_forward(std::move(a));
  auto next =
      detail::request(self, net[0]->slave(), forward_atom_v, x0.share());
  auto reason = await_forward(std::move(next)).reason;
  CHECK_MESSAGE(code_of(reason) == errc::participant_failed, describe(reason));
  CHECK(contains(describe(reason), "cuda:1 has failed"));
}

TEST_CASE_FIXTURE(gpu_fixture, "the others are told when the device of one "
                               "fails on its way to the host") {
  auto options = options_on(0);
  options.where = {};
  options.stream = {};
  batch_norm_layer cpu{system, options};
  batch_norm_stage lost{system, options_on(1)};
  callback_context context{"", 2};
  cpu.on_data_parallel_replicate(context, 0);
  lost.on_data_parallel_replicate(context, 1);
  device_step now{all_options[0], {2, 2}, 1};
  auto x = place(1, now.xs[1]);
  devices.hold();
  caf::scoped_actor self{system};
  auto pending = detail::request(self, lost.slave(), forward_atom_v, x.share());
  devices.break_device(1);
  devices.go();
  auto [code, text] = outcome_of([&] {
    std::ignore = cpu.forward(
        now.xs[0].view(), now.ys.empty() ? now.xs[0].view() : now.ys[0].view());
  });
  CHECK(code == errc::participant_failed);
  CHECK(contains(text, "cuda:1 has failed"));
  auto reason = await_forward(std::move(pending)).reason;
  CHECK(code_of(reason) == errc::device_failure);
}

namespace {

/// A copy on a CPU, and one on a device; replicated, with a round of theirs.
struct mixed_copies : gpu_fixture {
  device_step now{all_options[0], {2, 2}, 1};
  placed_tensor x = place(0, now.xs[1]);
  stages net;
  caf::scoped_actor self{system};

  auto forward(std::size_t r) {
    auto mine =
        r == 0 ? placed_tensor{device_stream{}, now.xs[0]}.share() : x.share();
    return detail::request(self, net[r]->slave(), forward_atom_v, mine);
  }

  mixed_copies() {
    auto options = options_on(0);
    options.deadline = std::chrono::hours{1};
    batch_norm_stage model{system, options};
    net.push_back(std::make_unique<batch_norm_stage>(model.clone_to({})));
    net.push_back(std::make_unique<batch_norm_stage>(model.clone()));
    execute_replication_callbacks(net);
    auto cpu = forward(0);
    auto there = forward(1);
    REQUIRE(describe(await_forward(std::move(cpu)).reason) == describe({}));
    REQUIRE(describe(await_forward(std::move(there)).reason) == describe({}));
  }

  void check_told(std::size_t r, errc code, const std::string& part) {
    auto reason = await_forward(forward(r)).reason;
    CHECK_MESSAGE(code_of(reason) == code, describe(reason));
    CHECK_MESSAGE(contains(describe(reason), part), describe(reason));
  }
};

} // namespace

TEST_CASE_FIXTURE(mixed_copies, "a device that takes no work when the round is "
                                "done fails the pass, and the others learn of "
                                "it in their next round") {
  devices.refuse_launch("normalize");
  auto cpu = forward(0);
  check_told(1, errc::device_failure, "normalize cannot be launched");
  CHECK(describe(await_forward(std::move(cpu)).reason) == describe({}));
  check_told(0, errc::participant_failed, "normalize cannot be launched");
}

TEST_CASE_FIXTURE(gpu_fixture, "a layer's pass that a device takes but for its "
                               "last kernel has changed nothing") {
  batch_norm_options options{.name = "bn", .channels = 3};
  options.type = dtype::float64;
  options.where = {device_type::cuda, 0};
  options.stream = device_stream::make(devices, options.where);
  batch_norm_layer layer{system, options};
  tensor values{make_layout(dtype::float64, std::array<std::int64_t, 2>{4, 3})};
  std::mt19937 random{5};
  fill(values, random, 10, 3);
  placed_tensor x{options.stream, values};
  placed_tensor y{options.stream, values};
  auto state = [&] {
    std::vector<double> result;
    for (const auto& arrays :
         {layer.replica().state(), layer.replica().gradients()})
      for (const auto& array : arrays)
        for (auto value : read({array}, array.name))
          result.push_back(value);
    return result;
  };
  auto tape = layer.forward(x.view(), y.view());
  auto before = state();
  auto refused = [&](const char* kernel, auto pass) {
    devices.refuse_launch(kernel);
    CHECK(outcome_of(pass).first == errc::device_failure);
    CHECK(state() == before);
  };
  refused("add_arrays",
          [&] { layer.backward(x.view(), x.view(), tape, y.view()); });
  refused("normalize",
          [&] { std::ignore = layer.forward(x.view(), y.view()); });
}

TEST_CASE_FIXTURE(mixed_copies, "a device that takes no copy to the host fails "
                                "the round of all, and the next request is "
                                "answered") {
  devices.refuse_launch("copy");
  auto cpu = forward(0);
  check_told(1, errc::device_failure, "copy cannot be launched");
  auto reason = await_forward(std::move(cpu)).reason;
  CHECK_MESSAGE(code_of(reason) == errc::participant_failed, describe(reason));
  check_told(1, errc::device_failure, "copy cannot be launched");
}

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

TEST_CASE_FIXTURE(gpu_fixture, "what is written to the state of a copy on a "
                               "device stays there when it is looked at "
                               "again") {
  batch_norm_layer layer{system, options_on(0)};
  device_step now{all_options[0], {2}, 1};
  auto x = place(0, now.xs[0]);
  auto y = place(0, now.xs[0]);
  std::ignore = layer.forward(x.view(), y.view());
  std::vector<double> weight{5, 6, 7};
  write(layer.replica().state(), "weight", weight);
  CHECK(read(layer.replica().state(), "weight") == weight);
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

TEST_CASE_FIXTURE(gpu_fixture, "an error in one slave actor on a device "
                               "reaches the others, and keeps the memory of "
                               "their kernels") {
  auto net = make_stages(3, options_on(0));
  device_step now{all_options[0], {2, 2, 2}, 1};
  auto wide = all_options[0];
  wide.channels = 4;
  device_step bad{wide, {2}, 1};
  devices.hold();
  caf::scoped_actor self{system};
  std::vector<decltype(detail::request(self, net[0]->slave(), forward_atom_v,
                                       shared_tensor{}))>
      pending;
  std::vector<std::optional<placed_tensor>> x;
  devices.go();
  for (std::size_t r = 0; r < 3; ++r)
    x.emplace_back(place(int(r % 2), r == 1 ? bad.xs[0] : now.xs[r]));
  devices.hold();
  for (std::size_t r = 0; r < 3; ++r)
    pending.push_back(
        detail::request(self, net[r]->slave(), forward_atom_v, x[r]->share()));
  x.clear();
  for (std::size_t r = 0; r < 3; ++r) {
    auto reason = await_forward(std::move(pending[r])).reason;
    CHECK(code_of(reason)
          == (r == 1 ? errc::shape_mismatch : errc::participant_failed));
  }
  devices.go();
}

TEST_CASE_FIXTURE(gpu_fixture, "devices merge along the tree over the "
                               "identifiers, also what relays have merged") {
  constexpr std::size_t copies = 7;
  device_step now{all_options[0], {1, 2, 3, 4, 5, 6, 7}, 1};
  std::vector<identified<batch_norm_message>> messages;
  std::vector<batch_norm_replica> replicas;
  for (std::size_t r = 0; r < copies; ++r) {
    auto options = options_on(int(r % 2));
    replicas.emplace_back(options);
    placed_tensor x{options.stream, now.xs[r]};
    // Replica 2 is missing.
    messages.push_back({std::int64_t(r < 2 ? r : r + 1),
                        replicas[r].begin_forward(x.view(), x.view())});
    options.stream.record().synchronize();
  }
  auto fetch = [](const channel_payload& x) {
    std::array arrays{x.array()};
    detail::host_copy copy{x.array().stream(), arrays};
    copy.work().end.synchronize();
    return copy.read(0);
  };
  auto flat = merge_round(messages);
  std::span all{messages};
  std::array nodes{
      identified<batch_norm_message>{0, merge_messages(all.first(3))},
      identified<batch_norm_message>{4, merge_messages(all.subspan(3))}};
  auto tree = merge_round(nodes);
  CHECK(tree.count == flat.count);
  CHECK(fetch(tree.values) == fetch(flat.values));
  CHECK(fetch(tree.running) == fetch(flat.running));
  now.expect({1, 1, 1}, {0, 0, 0});
  auto values = fetch(flat.values);
  check_near({values.begin(), values.begin() + 3}, now.truth.mean, 1e-10);
}

TEST_CASE_FIXTURE(gpu_fixture, "what lies on a device does not travel: a copy "
                               "whose master is on another node goes by the "
                               "host from the start") {
  batch_norm_message message;
  message.type = dtype::float64;
  message.channels = 3;
  message.count = 2;
  device_array values{device_stream::make(devices, gpu(0)), dtype::float64, 6};
  values.publish();
  message.values = values;
  CHECK(message.values.on_device());
  CHECK(message.values.size() == 6);
  batch_norm_message copy;
  REQUIRE(test::deserialize(test::serialize(message), copy));
  CHECK(copy.resend);
  CHECK(copy.values.size() == 0);
  CHECK(!message.resend);
  std::array both{identified<batch_norm_message>{0, message},
                  identified<batch_norm_message>{3, copy}};
  CHECK(merge_round(both).resend);

  layer_fixture there;
  auto options = all_options[0];
  batch_norm_participant owner{there.system, make_sync_options(options), 2};
  auto port = there.system.middleman().publish(owner.master(), 0);
  REQUIRE(port);
  auto master = system.middleman().remote_actor<batch_norm_master_actor>(
      "127.0.0.1", *port);
  REQUIRE(master);
  auto on_device = options_on(0);
  batch_norm_replica replica{on_device};
  device_step now{options, {2, 2}, 1};
  now.expect({1, 1, 1}, {0, 0, 0});
  batch_norm_replica host{options};
  auto y = now.xs[0];
  batch_norm_participant mine{system, *master, 1};
  std::thread other{[&] {
    auto sent = host.begin_forward(now.xs[0].view(), y.view());
    std::ignore = host.end_forward(owner.run(std::move(sent)), now.xs[0].view(),
                                   y.view());
  }};
  placed_tensor x{on_device.stream, now.xs[1]};
  auto reply = mine.run(replica.begin_forward(x.view(), x.view()));
  std::ignore = replica.end_forward(reply, x.view(), x.view());
  other.join();
  CHECK(mine.messages_sent() == 1);
  check_near(x.read(), now.ys[1], 1e-10);
  check_near(y, now.ys[0], 1e-10);
}

TEST_CASE_FIXTURE(gpu_fixture, "a device that is not there, or does not fit, "
                               "is refused in words") {
  auto options = options_on(0);
  batch_norm_layer layer{system, options};
  auto [code, text] = outcome_of([&] { std::ignore = layer.clone_to(gpu(2)); });
  CHECK(code == errc::device_unavailable);
  CHECK(contains(text, "cuda:2"));
  options.where = gpu(1);
  CHECK(outcome_of([&] {
          batch_norm_layer{system, options};
        })
        == std::pair{errc::device_mismatch,
                     std::string{"batch_norm_options of layer bn: stream: "
                                 "expected one of cuda:1, got one of cuda:0"}});
  options = all_options[0];
  options.where = gpu(9999);
  CHECK(outcome_of([&] {
          batch_norm_layer{system, options};
        }).first
        == errc::device_unavailable);
  CHECK(outcome_of([&] {
          batch_norm_stage{system, options};
        }).first
        == errc::device_unavailable);
  device_step now{all_options[0], {2}, 1};
  CHECK(outcome_of([&] {
          std::ignore = layer.forward(now.xs[0].view(), now.xs[0].view());
        }).first
        == errc::device_mismatch);
}

TEST_CASE_FIXTURE(gpu_fixture, "a device's layer refuses a tape of another "
                               "dtype or device, and an output that overlaps "
                               "its input") {
  tensor host{make_layout(dtype::float32, std::array<std::int64_t, 2>{4, 3})};
  auto tape_of = [&](batch_norm_options options) {
    options.type = dtype::float64;
    tensor content{
        make_layout(dtype::float64, std::array<std::int64_t, 2>{4, 3})};
    placed_tensor x{options.stream, content};
    return batch_norm_layer{system, options}.forward(x.view(), x.view());
  };
  auto wider = tape_of(options_on(0));
  auto on_host = tape_of(all_options[0]);
  auto options = options_on(0);
  options.type = dtype::float32;
  batch_norm_layer layer{system, options};
  placed_tensor x{options.stream, host};
  auto refused = [&](const batch_norm_tape& tape) {
    auto got =
        outcome_of([&] { layer.backward(x.view(), x.view(), tape, x.view()); });
    CHECK(got.first == errc::invalid_argument);
    CHECK(contains(got.second, "float32 statistics of 3 channels on cuda:0"));
    return got.second.substr(got.second.find("got"));
  };
  CHECK(refused(wider) == "got float64 statistics of 3 channels on cuda:0");
  CHECK(refused(on_host) == "got float64 statistics of 3 channels on cpu");
  auto elsewhere = options_on(1);
  elsewhere.type = dtype::float32;
  placed_tensor there{elsewhere.stream, host};
  batch_norm_layer other{system, elsewhere};
  CHECK(refused(other.forward(there.view(), there.view()))
        == "got float32 statistics of 3 channels on cuda:1");

  auto half = x.view().layout();
  half.shape.samples = 2;
  tensor_view first{x.view().data(), half};
  tensor_view behind{static_cast<float*>(x.view().data()) + 3, half};
  auto before = read(layer.replica().state(), "running_var");
  CHECK(outcome_of([&] { std::ignore = layer.forward(first, behind); }).first
        == errc::invalid_argument);
  CHECK(read(layer.replica().state(), "running_var") == before);
}

TEST_CASE_FIXTURE(gpu_fixture, "statistics on a device that a replica cannot "
                               "read are malformed") {
  auto options = options_on(0);
  auto array_of = [&](dtype type, std::size_t size) {
    device_array result{options.stream, type, size};
    result.publish();
    return channel_payload{result};
  };
  auto refused = [](batch_norm_options of, const channel_payload& values) {
    batch_norm_replica replica{std::move(of)};
    batch_norm_reply reply;
    reply.values = values;
    batch_norm_tape tape;
    auto got = outcome_of([&] { tape = replica.accept(reply); });
    CHECK(got.first == errc::malformed_message);
    return got.second.substr(got.second.find("expected"));
  };
  CHECK(refused(options, array_of(dtype::float32, 6))
        == "expected 6 values of float64, got 6 of float32 on cuda:0");
  CHECK(refused(options, array_of(dtype::float64, 4))
        == "expected 6 values of float64, got 4 of float64 on cuda:0");
  CHECK(refused(options, channel_payload{1, 2})
        == "expected 6 values of float64, got 2");
  CHECK(refused(all_options[0], array_of(dtype::float64, 6))
        == "expected 6 values, got 6 of float64 on cuda:0");
}

TEST_CASE_FIXTURE(gpu_fixture, "a message whose arrays on a device do not fit "
                               "it is refused, and the replica is named") {
  auto stream = device_stream::make(devices, gpu(0));
  auto array_of = [&](dtype type, std::size_t size) {
    device_array result{stream, type, size};
    result.publish();
    return channel_payload{result};
  };
  auto refused = [](auto change) {
    batch_norm_message message;
    message.type = dtype::float64;
    message.channels = 1;
    message.count = 2;
    message.values = {1, 2};
    change(message);
    std::array all{identified<batch_norm_message>{0, std::move(message)}};
    return outcome_of([&] { std::ignore = merge_round(all); });
  };
  const std::string sent = "replica 0 sent ";
  CHECK(refused([&](auto& x) { x.values = array_of(dtype::float32, 2); })
        == std::pair{errc::dtype_mismatch,
                     sent
                         + "statistics of float32 on a device for a float64 "
                           "tensor"});
  auto shared = std::pair{errc::invalid_argument,
                          sent
                              + "2 batches in one message; only forward passes "
                                "can share one"};
  auto two_batches = [](auto& x) {
    x.more.push_back(2);
    x.values = {1, 2, 3, 4};
  };
  CHECK(refused(two_batches).first == errc::none);
  CHECK(refused([&](auto& x) {
          two_batches(x);
          x.mode = round_mode::backward;
        })
        == shared);
  CHECK(refused([&](auto& x) {
          two_batches(x);
          x.mode = round_mode::backward;
          x.values = array_of(dtype::float64, 4);
        })
        == shared);
  auto apart = std::pair{errc::device_mismatch,
                         sent
                             + "running statistics and values in memory of "
                               "different devices"};
  CHECK(
      refused([&](auto& x) { x.update.running = array_of(dtype::float64, 2); })
      == apart);
  CHECK(refused([&](auto& x) {
          x.values = array_of(dtype::float64, 2);
          x.update.running = {1, 2};
        })
        == apart);
  CHECK(refused([&](auto& x) {
          x.values = array_of(dtype::float64, 2);
          x.update.running = array_of(dtype::float32, 2);
        })
        == std::pair{errc::dtype_mismatch,
                     sent
                         + "running statistics of float32 and values of "
                           "float64"});
  CHECK(refused([&](auto& x) {
          x.type = dtype::float32;
          x.values = array_of(dtype::float32, 2);
          x.update.online = true;
        })
        == std::pair{errc::dtype_mismatch,
                     sent
                         + "online statistics of float32 on a device, expected "
                           "float64"});
}

TEST_CASE_FIXTURE(gpu_fixture, "payloads on a device are equal if they are one "
                               "array, and equal none in host memory") {
  auto stream = device_stream::make(devices, gpu(0));
  auto array_on = [&] {
    device_array result{stream, dtype::float64, 2};
    result.publish();
    return result;
  };
  const channel_payload first{array_on()};
  const channel_payload second{array_on()};
  CHECK(bool(first == channel_payload{first}));
  CHECK(bool(first != second));
  CHECK(bool(first != channel_payload{}));
  CHECK(bool(first != double_array{}));
  CHECK(bool(channel_payload{1, 2} == double_array{1, 2}));
  CHECK(bool(channel_payload{1, 2} != channel_payload{1, 3}));
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
                  "where there is no memory for an event, a request "
                  "is refused, and the program goes on") {
  auto net = make_stages(1, options_on(0));
  device_step now{all_options[0], {2}, 1};
  caf::scoped_actor self{system};
  auto x = place(0, now.xs[0]);
  devices.refuse_events();
  for (int i = 0; i < 2; ++i) {
    auto reason = await_forward(detail::request(self, net[0]->slave(),
                                                forward_atom_v, x.share()))
                      .reason;
    CHECK(reason);
  }
}

TEST_CASE_FIXTURE(gpu_fixture,
                  "where there is no memory for an event, a request for a "
                  "state is refused, the copy goes on, and memory that the "
                  "device may still use is kept") {
  auto net = make_stages(2, options_on(0));
  caf::scoped_actor self{system};
  auto read = [&](const char* name) {
    caf::error result;
    detail::request(self, net[0]->slave(), read_state_atom_v, std::string{name})
        .receive([](const double_array&) {},
                 [&](caf::error& reason) { result = std::move(reason); });
    return result;
  };
  CHECK_FALSE(read("weight"));
  devices.hold();
  devices.refuse_events();
  CHECK(describe(read("weight")).find("bad_alloc") != std::string::npos);
  caf::error refusal;
  detail::request(self, net[0]->slave(), write_state_atom_v,
                  std::string{"weight"}, double_array{{5.0, 6.0, 7.0}})
      .receive([] {}, [&](caf::error& reason) { refusal = std::move(reason); });
  CHECK(describe(refusal).find("bad_alloc") != std::string::npos);
  CHECK_FALSE(read("num_batches_tracked"));
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

TEST_CASE("nothing above was out of order") {
  devices_under_test().drain();
  CHECK(devices_under_test().faults() == std::vector<std::string>{});
}
