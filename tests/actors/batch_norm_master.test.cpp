#include "syncnorm/batch_norm_master.hpp"

#include "syncnorm/batch_norm_participant.hpp"
#include "syncnorm/merge_tree.hpp"
#include "tests/actors/layer_copies.hpp"
#include "tests/actors/wire.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

using messages = std::vector<identified<batch_norm_message>>;

/// A message of one channel, or of as many as there are pairs of `values`.
batch_norm_message make_message(round_mode mode, std::int64_t count,
                                std::vector<double> values) {
  batch_norm_message result;
  result.mode = mode;
  result.type = dtype::float64;
  result.channels = static_cast<std::int64_t>(values.size()) / 2;
  result.count = count;
  result.values = double_array{std::move(values)};
  return result;
}

batch_norm_message forward(std::int64_t count, std::vector<double> values) {
  return make_message(round_mode::forward, count, std::move(values));
}

batch_norm_message backward(std::int64_t count, std::vector<double> values) {
  return make_message(round_mode::backward, count, std::move(values));
}

messages number(std::vector<batch_norm_message> xs) {
  messages result;
  for (auto& x : xs)
    result.push_back({static_cast<std::int64_t>(result.size()), std::move(x)});
  return result;
}

std::vector<double> list(const double_array& x) {
  return {x.begin(), x.end()};
}

std::pair<errc, std::string> refusal(const messages& xs) {
  return outcome_of([&] { std::ignore = merge_round(xs); });
}

} // namespace

TEST_CASE("a forward round merges the moments and updates the running "
          "statistics once") {
  // {1, 3} and {5, 5, 5, 5}: mean 4, M2 14.
  auto xs = number({forward(2, {2, 2}), forward(4, {5, 0})});
  for (auto& x : xs) {
    x.message.update.eps = 0.0;
    x.message.update.momentum = 0.25;
  }
  xs[0].message.update.running = {8, 4};
  xs[0].message.update.num_batches_tracked = 6;
  // The others' statistics do not count.
  xs[1].message.update.running = {100, 100};
  auto reply = merge_round(xs);
  CHECK(reply.count == 6);
  CHECK(reply.values[0] == doctest::Approx(4).epsilon(1e-15));
  CHECK(reply.values[1] == doctest::Approx(std::sqrt(6.0 / 14)).epsilon(1e-15));
  CHECK(reply.running[0] == doctest::Approx(7).epsilon(1e-15));
  // 0.75 * 4 + 0.25 * 14 / 5
  CHECK(reply.running[1] == doctest::Approx(3.7).epsilon(1e-15));
  CHECK(reply.num_batches_tracked == 7);
}

TEST_CASE("a cumulative average weighs all batches alike") {
  double_array running{0, 1};
  std::int64_t batches = 0;
  for (double mean : {3.0, 6.0, 30.0}) {
    auto xs = number({forward(2, {mean, 8})});
    xs[0].message.update.cumulative = true;
    xs[0].message.update.running = running;
    xs[0].message.update.num_batches_tracked = batches;
    auto reply = merge_round(xs);
    running = reply.running;
    batches = reply.num_batches_tracked;
  }
  CHECK(batches == 3);
  CHECK(running[0] == doctest::Approx(13).epsilon(1e-15));
  CHECK(running[1] == doctest::Approx(8).epsilon(1e-15));
}

TEST_CASE("eps is added to the variance, or bounds it from below") {
  auto xs = number({forward(4, {0, 0, 4, 16})}); // variances 1 and 4
  xs[0].message.update.eps = 2.0;
  auto plus = merge_round(xs);
  CHECK(plus.values[2] == doctest::Approx(1 / std::sqrt(3.0)).epsilon(1e-15));
  CHECK(plus.values[3] == doctest::Approx(1 / std::sqrt(6.0)).epsilon(1e-15));
  xs[0].message.update.mode = eps_mode::clamp;
  auto clamp = merge_round(xs);
  CHECK(clamp.values[2] == doctest::Approx(1 / std::sqrt(2.0)).epsilon(1e-15));
  CHECK(clamp.values[3] == doctest::Approx(0.5).epsilon(1e-15));
}

TEST_CASE("replicas without elements change nothing, with values or without") {
  auto nan = std::numeric_limits<double>::quiet_NaN();
  auto some = merge_round(number({forward(2, {2, 2}), forward(4, {5, 0})}));
  auto xs =
      number({forward(0, {nan, nan}), forward(2, {2, 2}), forward(4, {5, 0})});
  xs[0].message.values = {};
  CHECK(list(merge_round(xs).values) == list(some.values));
  xs[0].message.values = {nan, nan};
  CHECK(list(merge_round(xs).values) == list(some.values));
}

TEST_CASE("a round without any element leaves the running statistics and "
          "their number") {
  auto xs = number({forward(0, {0, 0}), forward(0, {0, 0})});
  xs[0].message.update.running = {8, 4};
  xs[0].message.update.num_batches_tracked = 6;
  auto reply = merge_round(xs);
  CHECK(reply.count == 0);
  CHECK(list(reply.values) == std::vector<double>{0, 1 / std::sqrt(1e-5)});
  CHECK(list(reply.running) == std::vector<double>{8, 4});
  CHECK(reply.num_batches_tracked == 6);
}

TEST_CASE("a backward round adds, with the same bits if groups of a power of "
          "two were added first") {
  std::mt19937 random{1};
  std::normal_distribution<double> values;
  std::vector<batch_norm_message> all;
  for (int i = 0; i < 13; ++i)
    all.push_back(backward(i, {values(random), 1e8 * values(random),
                               1e-8 * values(random), values(random)}));
  auto flat = merge_round(number(all));
  CHECK(flat.count == 78);
  for (std::size_t group : {2, 4, 8}) {
    std::vector<batch_norm_message> sums;
    for (std::size_t i = 0; i < all.size(); i += group) {
      std::vector part(
          all.begin() + static_cast<std::ptrdiff_t>(i),
          all.begin()
              + static_cast<std::ptrdiff_t>(std::min(i + group, all.size())));
      auto reply = merge_round(number(part));
      sums.push_back(backward(reply.count, list(reply.values)));
    }
    auto tree = merge_round(number(sums));
    CHECK(list(tree.values) == list(flat.values));
    CHECK(tree.count == flat.count);
  }
}

TEST_CASE("a round has the same bits if a relay has merged the nodes of the "
          "tree in its range, replicas missing or empty") {
  std::mt19937 random{2};
  std::normal_distribution<double> values;
  for (auto make : {forward, backward}) {
    std::vector<identified<batch_norm_message>> all;
    for (std::int64_t i = 0; i < 29; ++i)
      if (i % 7 != 3)
        all.push_back({i, make(i % 5, {values(random), 1e8 * values(random),
                                       1.0 + double(i % 3), 2})});
    auto flat = merge_round(all);
    for (std::int64_t first : {1, 4, 5, 11})
      for (std::int64_t count : {1, 6, 8, 17}) {
        auto nodes = detail::tree_blocks(first, count);
        auto node_of = [&](std::int64_t id) {
          return *std::prev(std::upper_bound(nodes.begin(), nodes.end(), id));
        };
        std::vector<identified<batch_norm_message>> tree;
        for (std::size_t i = 0; i < all.size();) {
          auto id = all[i].identifier;
          std::vector<identified<batch_norm_message>> some{all[i++]};
          auto inside = id >= first && id < first + count;
          while (inside && i < all.size() && all[i].identifier < first + count
                 && node_of(all[i].identifier) == node_of(id))
            some.push_back(all[i++]);
          tree.push_back({inside ? node_of(id) : id, merge_messages(some)});
        }
        auto reply = merge_round(tree);
        CHECK(reply.count == flat.count);
        CHECK(list(reply.values) == list(flat.values));
      }
  }
}

TEST_CASE("messages that disagree are refused, and the replica is named") {
  auto xs = number({forward(2, {2, 2}), forward(4, {5, 0})});
  SUBCASE("mode") {
    xs[1].message.mode = round_mode::backward;
    auto [code, text] = refusal(xs);
    CHECK(code == errc::invalid_argument);
    CHECK(contains(text, "replica 1 sent a backward message, replica 0 a "
                         "forward message"));
  }
  SUBCASE("channels") {
    xs[1].message = forward(4, {1, 2, 3, 4});
    CHECK(refusal(xs)
          == std::pair{errc::shape_mismatch,
                       std::string{"replica 1 sent 2 channels, replica 0 1 "
                                   "channels"}});
  }
  SUBCASE("dtype") {
    xs[1].message.type = dtype::bfloat16;
    CHECK(refusal(xs)
          == std::pair{errc::dtype_mismatch,
                       std::string{"replica 1 sent bfloat16, replica 0 "
                                   "float64"}});
  }
}

TEST_CASE("copies of a layer with other options are refused, here or behind a "
          "relay, and both are told") {
  auto refused = [](auto change) {
    auto xs = number({forward(2, {2, 2}), forward(4, {5, 0})});
    change(xs[1].message.update);
    auto [code, text] = refusal(xs);
    CHECK(code == errc::invalid_argument);
    CHECK(outcome_of([&] { std::ignore = merge_messages(xs); }).second == text);
    CHECK(contains(text, "replica 0 eps=1e-05, mode=plus, momentum=0.1, "
                         "online=false; copies of a layer must have the same "
                         "options"));
    return text;
  };
  CHECK(contains(refused([](auto& x) { x.eps = 0.001; }),
                 "replica 1 sent eps=0.001, mode=plus, momentum=0.1"));
  CHECK(contains(refused([](auto& x) { x.mode = eps_mode::clamp; }),
                 "mode=clamp"));
  CHECK(contains(refused([](auto& x) { x.momentum = 0.5; }), "momentum=0.5"));
  CHECK(
      contains(refused([](auto& x) { x.cumulative = true; }), "momentum=none"));
  CHECK(contains(refused([](auto& x) { x.online = true; }), "online=true"));
}

TEST_CASE("a message that asks to be sent again has no options that could "
          "disagree") {
  auto xs = number({forward(2, {2, 2}), forward(4, {5, 0})});
  xs[1].message.update.eps = 0.001;
  for (auto again : {0, 1}) {
    xs[0].message.resend = again == 0;
    xs[1].message.resend = again == 1;
    CHECK(merge_round(xs).resend);
  }
}

TEST_CASE("messages that are not what they say are malformed") {
  auto refused = [](auto change) {
    auto xs = number({forward(2, {2, 2}), forward(4, {5, 0})});
    change(xs[0].message);
    auto [code, text] = refusal(xs);
    CHECK(code == errc::malformed_message);
    return text;
  };
  auto max = std::numeric_limits<std::int64_t>::max();
  CHECK(contains(refused([](auto& x) {
                   x.values = {1, 2, 3};
                 }),
                 "replica 0 sent 3 values for 1 channels in 1 batches, "
                 "expected 2"));
  CHECK(contains(refused([](auto& x) { x.values = {}; }), "0 values"));
  CHECK(contains(refused([](auto& x) { x.count = -1; }), "count of -1"));
  CHECK(contains(refused([](auto& x) { x.later_counts.push_back(1); }),
                 "2 values for 1 channels in 2 batches, expected 4"));
  CHECK(contains(refused([](auto& x) {
                   x.later_counts.push_back(-1);
                   x.values = {1, 2, 3, 4};
                 }),
                 "count of -1"));
  CHECK(contains(refused([=](auto& x) { x.count = max; }), "too many in all"));
  CHECK(contains(refused([](auto& x) { x.mode.code = 9; }), "mode 9"));
  CHECK(contains(refused([](auto& x) { x.type.code = 9; }), "dtype 9"));
  CHECK(
      contains(refused([](auto& x) { x.update.mode.code = 9; }), "eps mode 9"));
  CHECK(contains(refused([=](auto& x) { x.channels = max; }), "channels"));
  CHECK(contains(refused([](auto& x) {
                   x.values = {};
                   x.count = 0;
                   x.channels = double_array::max_size / 2 + 1;
                 }),
                 "channels"));
  CHECK(contains(refused([](auto& x) { x.update.running = {1}; }),
                 "1 running statistics, expected 2 or none"));
  CHECK(contains(refused([=](auto& x) { x.update.num_batches_tracked = max; }),
                 "num_batches_tracked 9223372036854775807, expected 0 to"));
}

TEST_CASE("replicas with too many elements are told so in the same words, with "
          "relays or without") {
  auto quarter = std::int64_t{1} << 61;
  messages flat;
  for (std::int64_t i = 0; i < 4; ++i)
    flat.push_back({i, forward(quarter, {2, 2})});
  auto right = std::span{flat}.last(2);
  messages relayed{flat[0], flat[1], {2, merge_messages(right)}};
  auto told = refusal(flat);
  CHECK(told
        == std::pair{errc::malformed_message,
                     std::string{"the replicas' counts are more than "
                                 "9223372036854775807 elements, too many in "
                                 "all"}});
  CHECK(refusal(relayed) == told);
}

TEST_CASE_FIXTURE(layer_fixture, "an error of the master's callback reaches "
                                 "every participant with its own code, behind "
                                 "layer and round") {
  batch_norm_participant owner{system, {.layer = "bn7"}, 3};
  std::vector<batch_norm_participant> all;
  all.push_back(std::move(owner));
  for (int id = 1; id < 3; ++id)
    all.emplace_back(system, all[0].master(), id);
  auto thrown = on_threads(3, [&](std::size_t r) {
    all[r].run(r == 2 ? forward(1, {0, 0, 0, 0}) : forward(1, {0, 0}));
  });
  for (const auto& x : thrown)
    CHECK(outcome(x)
          == std::pair{errc::shape_mismatch,
                       std::string{"layer bn7, round 1: replica 2 sent 2 "
                                   "channels, replica 0 1 channels"}});
}

TEST_CASE_FIXTURE(layer_fixture, "a round before all copies have registered "
                                 "fails, and says who is there") {
  batch_norm_participant owner{system, {.layer = "bn"}, 3};
  batch_norm_participant slave{system, owner.master(), 1};
  auto thrown = on_threads(2, [&](std::size_t r) {
    (r == 0 ? owner : slave).run(forward(1, {0, 0}));
  });
  for (const auto& x : thrown)
    CHECK(
        outcome(x)
        == std::pair{errc::unregistered,
                     std::string{"layer bn, round 1: 3 replicas were to take "
                                 "part, but 2 are registered: replicas 0, 1"}});
}

TEST_CASE_FIXTURE(layer_fixture, "a round of more copies than take part fails, "
                                 "and says who is there") {
  batch_norm_participant owner{system, {.layer = "bn"}, 2};
  batch_norm_participant one{system, owner.master(), 1};
  batch_norm_participant two{system, owner.master(), 2};
  auto thrown = on_threads(3, [&](std::size_t r) {
    (r == 0 ? owner : r == 1 ? one : two).run(forward(1, {0, 0}));
  });
  for (const auto& x : thrown)
    CHECK(outcome(x)
          == std::pair{
              errc::unregistered,
              std::string{"layer bn, round 1: 2 replicas were to take "
                          "part, but 3 are registered: replicas 0, 1, 2"}});
}

TEST_CASE_FIXTURE(layer_fixture, "a participant that is the only one sends no "
                                 "message and needs no actor") {
  batch_norm_participant alone{system, {.layer = "bn"}, 1};
  CHECK(alone.run(forward(2, {2, 2})).count == 2);
  CHECK(alone.messages_sent() == 0);
  CHECK(!alone.master());
}

TEST_CASE_FIXTURE(layer_fixture, "a participant that was moved from has no "
                                 "part, in the middle of a round too") {
  batch_norm_participant owner{system, {.layer = "bn"}, 2};
  batch_norm_participant slave{system, owner.master(), 1};
  slave.begin(forward(1, {2, 0}));
  owner.begin(forward(1, {2, 0}));
  auto here = std::move(owner);
  auto there = std::move(slave);
  for (auto* gone : {&owner, &slave}) {
    gone->give_up("nobody hears it");
    CHECK(outcome_of([&] {
            gone->begin(forward(1, {2, 0}));
          }).first
          == errc::invalid_argument);
    CHECK(outcome_of([&] { gone->end(); }).first == errc::invalid_argument);
  }
  CHECK(here.end().count == 2);
  CHECK(there.end().count == 2);
}

TEST_CASE_FIXTURE(layer_fixture, "a participant begins no second round before "
                                 "it has the reply of the first, and ends none "
                                 "that it has not begun") {
  batch_norm_participant alone{system, {.layer = "bn"}, 1};
  auto refused = [&](auto f) {
    return outcome_of(f).first == errc::invalid_argument;
  };
  CHECK(refused([&] { alone.end(); }));
  alone.begin(forward(1, {2, 0}));
  CHECK(refused([&] { alone.begin(forward(3, {2, 0})); }));
  CHECK(alone.end().count == 1);
  CHECK(refused([&] { alone.end(); }));
}

TEST_CASE_FIXTURE(layer_fixture, "one copy cannot register twice") {
  batch_norm_participant owner{system, {.layer = "bn"}, 3};
  batch_norm_participant first{system, owner.master(), 1};
  auto [code, text] =
      outcome_of([&] { batch_norm_participant(system, owner.master(), 1); });
  CHECK(code == errc::duplicate_identifier);
  CHECK(text == "layer bn, round 1: replica 1 is registered already");
}

TEST_CASE("what a round says arrives at another node with the same bits") {
  auto infinity = std::numeric_limits<double>::infinity();
  auto tiny = std::numeric_limits<double>::denorm_min();
  auto sent = backward(7, {infinity, -0.0, tiny, 4});
  sent.type = dtype::bfloat16;
  sent.update.eps = tiny;
  sent.update.mode = eps_mode::clamp;
  sent.update.momentum = 0.3;
  sent.update.cumulative = true;
  sent.update.running = {1, -infinity};
  sent.update.num_batches_tracked = 12;
  batch_norm_message got;
  REQUIRE(test::deserialize(test::serialize(sent), got));
  CHECK(got.mode == round_mode::backward);
  CHECK(got.type == dtype::bfloat16);
  CHECK(got.channels == 2);
  CHECK(got.count == 7);
  CHECK(list(got.values) == list(sent.values));
  CHECK(std::signbit(got.values[1]));
  CHECK(got.update.eps == tiny);
  CHECK(got.update.mode == eps_mode::clamp);
  CHECK(got.update.momentum == 0.3);
  CHECK(got.update.cumulative);
  CHECK(list(got.update.running) == list(sent.update.running));
  CHECK(got.update.num_batches_tracked == 12);

  batch_norm_reply reply{9, {tiny, infinity}, {1, 2}, 3, false, {5}, 4};
  batch_norm_reply returned;
  REQUIRE(test::deserialize(test::serialize(reply), returned));
  CHECK(returned.count == 9);
  CHECK(list(returned.values) == list(reply.values));
  REQUIRE(returned.later_counts.size() == 1);
  CHECK(returned.later_counts[0] == 5);
  CHECK(list(returned.running) == list(reply.running));
  CHECK(returned.num_batches_tracked == 3);
  CHECK(returned.pass == 4);
}

TEST_CASE_FIXTURE(layer_fixture, "a participant on another node gets the same "
                                 "reply, and the same errors") {
  layer_config other_config;
  caf::actor_system other{other_config};
  batch_norm_participant owner{system, {.layer = "bn"}, 2};
  auto port = system.middleman().publish(owner.master(), 0, "127.0.0.1");
  REQUIRE(port);
  auto master = other.middleman().remote_actor<batch_norm_master_actor>(
      "127.0.0.1", *port);
  REQUIRE(master);
  batch_norm_participant slave{other, *master, 1};
  std::vector<std::vector<double>> values(2);
  run_all(2, [&](std::size_t r) {
    values[r] = list((r == 0 ? owner : slave)
                         .run(r == 0 ? forward(2, {2, 2}) : forward(4, {5, 0}))
                         .values);
  });
  auto want =
      merge_round(number({forward(2, {2, 2}), forward(4, {5, 0})})).values;
  CHECK(values[0] == list(want));
  CHECK(values[1] == list(want));
  auto thrown = on_threads(2, [&](std::size_t r) {
    (r == 0 ? owner : slave)
        .run(r == 0 ? forward(2, {2, 2}) : backward(2, {2, 2}));
  });
  for (const auto& x : thrown)
    CHECK(contains(outcome(x).second, "layer bn, round 2: replica 1 sent a "
                                      "backward message"));
}
