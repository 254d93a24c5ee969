// A copy without the exchange.

#include "tests/actors/replicated.hpp"

#include <doctest/doctest.h>

#include <tuple>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

TEST_CASE(
    "a replica takes over the state of one with the same arrays only, and "
    "else stays as it is") {
  auto refused = [](auto change) {
    auto theirs = make_options();
    change(theirs);
    batch_norm_replica other{theirs};
    other.train(false);
    batch_norm_replica mine{make_options()};
    write(mine.state(), "weight", {3, 4});
    write(mine.gradients(), "bias", {5, 6});
    auto got = outcome_of([&] { mine.assign_state(other); });
    CHECK(got.first == errc::shape_mismatch);
    CHECK(read(mine.state(), "weight") == std::vector<double>{3, 4});
    CHECK(read(mine.gradients(), "bias") == std::vector<double>{5, 6});
    CHECK(mine.is_training());
    CHECK(outcome_of([&] { other.assign_state(mine); }).first
          == errc::shape_mismatch);
    return got.second;
  };
  CHECK(refused([](auto& x) { x.channels = 1; })
        == "layer bn: assign_state: weight: expected 2 elements, got 1");
  CHECK(refused([](auto& x) { x.affine = false; })
        == "layer bn: assign_state: weight: expected 2 elements, got 0");
  CHECK(refused([](auto& x) { x.track_running_stats = false; })
        == "layer bn: assign_state: running_mean: expected 2 elements, got 0");
  CHECK(refused([](auto& x) { x.online = true; })
        == "layer bn: assign_state: expected the state of a layer with online "
           "= false, got online = true");
  CHECK(refused([](auto& x) { x.frozen = true; })
        == "layer bn: assign_state: weight.grad: expected 2 elements, got 0");
}

TEST_CASE("a replica takes over state of another type and name") {
  auto theirs = make_options();
  theirs.name = "other";
  theirs.type = dtype::float32;
  batch_norm_replica other{theirs};
  write(other.state(), "weight", {3, 4});
  write(other.gradients(), "bias", {5, 6});
  other.train(false);
  batch_norm_replica mine{make_options()};
  mine.assign_state(other);
  CHECK(read(mine.state(), "weight") == std::vector<double>{3, 4});
  CHECK(read(mine.gradients(), "bias") == std::vector<double>{5, 6});
  CHECK_FALSE(mine.is_training());
}

TEST_CASE(
    "a reply with statistics of another size is malformed, and nothing is "
    "taken over or written") {
  batch_norm_replica replica{make_options()};
  auto x = make_x(1);
  auto y = x;
  batch_norm_reply good;
  good.count = 4;
  good.values = {1, 2, 1, 1};
  good.running = {1, 2, 3, 4};
  good.num_batches_tracked = 1;
  auto refused = [&](auto change, auto pass) {
    auto reply = good;
    change(reply);
    auto bytes = y.bytes;
    auto got = outcome_of([&] { pass(reply); });
    CHECK(got.first == errc::malformed_message);
    CHECK(y.bytes == bytes);
    CHECK(replica.num_batches_tracked() == 0);
    CHECK(read(replica.state(), "running_var") == std::vector<double>{1, 1});
    CHECK(read(replica.gradients(), "bias") == std::vector<double>{0, 0});
    return got.second;
  };
  auto forward = [&](const batch_norm_reply& reply) {
    std::ignore = replica.end_forward(reply, x.view(), y.view());
  };
  CHECK(refused([](auto& reply) { reply.running = {1}; }, forward)
        == "layer bn: forward: the reply's running statistics: expected 4 "
           "values, got 1");
  CHECK(refused(
            [](auto& reply) {
              reply.values = {1, 2};
            },
            forward)
        == "layer bn: forward: the reply's statistics: expected 4 values, got "
           "2");
  CHECK(contains(
      refused([](auto& reply) { reply.later_counts.push_back(2); }, forward),
      "expected the statistics of 1 batches, got 4 values of 2"));

  std::ignore = replica.begin_forward(x.view(), y.view());
  auto kept = good;
  kept.running = {};
  auto tape = replica.end_forward(kept, x.view(), y.view());
  std::ignore = replica.begin_backward(x.view(), x.view(), tape, y.view());
  auto backward = [&](const batch_norm_reply& reply) {
    replica.end_backward(reply, x.view(), x.view(), tape, y.view());
  };
  for (const auto& values : {double_array{}, double_array{1}})
    CHECK(contains(
        refused([&](auto& reply) { reply.values = values; }, backward),
        "layer bn: backward: the reply's sums: expected 4 values, got "));
}
