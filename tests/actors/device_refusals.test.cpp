// What does not fit on a device.

#include "tests/actors/gpu_fixture.hpp"

using namespace syncnorm;
using namespace syncnorm::test;

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
    x.later_counts.push_back(2);
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
