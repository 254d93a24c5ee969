// Copies on devices, which the host emulates.

#include "tests/kernels/emulated_devices.hpp"

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
#include "tests/actors/gpu_fixture.hpp"

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

TEST_CASE("nothing above was out of order") {
  devices_under_test().drain();
  CHECK(devices_under_test().faults() == std::vector<std::string>{});
}
