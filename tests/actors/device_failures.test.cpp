// What a device fails at, and who learns of it.

#include "tests/actors/gpu_fixture.hpp"

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// Two copies on devices that have not begun, each asked for a pass.
struct two_at_work : gpu_fixture {
  stages net = make_stages(2, options_on(0));
  device_step now{all_options[0], {2, 2}, 1};
  placed_tensor x0 = place(0, now.xs[0]);
  placed_tensor x1 = place(1, now.xs[1]);
  caf::scoped_actor self{system};

  using pending_type = decltype(detail::request(self, net[0]->slave(),
                                                forward_atom_v, x0.share()));

  pending_type ask(std::size_t r, const placed_tensor& x) {
    devices.hold();
    return detail::request(self, net[r]->slave(), forward_atom_v, x.share());
  }

  pending_type a = ask(0, x0);
  pending_type b = ask(1, x1);

  two_at_work() {
    await_first_pass(net);
  }
};

} // namespace

TEST_CASE_FIXTURE(two_at_work, "a device that fails is an error that names the "
                               "layer and the replica, for each request") {
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

TEST_CASE_FIXTURE(two_at_work, "the others learn in their next round of a "
                               "device that failed at the end of the last") {
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
