#include "syncnorm/batch_norm_stage.hpp"

#include "tests/actors/batch_norm_reference.hpp"
#include "tests/actors/layer_copies.hpp"
#include "tests/actors/wire.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <variant>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

using stages = std::vector<std::unique_ptr<batch_norm_stage>>;

stages make_stages(caf::actor_system& system, const batch_norm_options& options,
                   std::size_t count) {
  stages result;
  result.push_back(std::make_unique<batch_norm_stage>(system, options));
  while (result.size() < count)
    result.push_back(std::make_unique<batch_norm_stage>(result[0]->clone()));
  return result;
}

/// A tensor of a message, to be looked at.
tensor fetch(const shared_tensor& x) {
  tensor result{x.view().layout()};
  std::copy_n(static_cast<const std::byte*>(x.view().data()),
              result.bytes.size(), result.bytes.begin());
  return result;
}

struct answer {
  caf::error reason;
  tensor value;
  std::uint64_t pass_id = 0;
};

/// Requests that stay open until they are awaited: what a pipeline does.
class client {
public:
  explicit client(caf::actor_system& system) : self_{system} {}

  auto forward(const batch_norm_stage& to, const tensor& x) {
    return detail::request(self_, to.slave(), forward_atom_v, share(x));
  }

  auto backward(const batch_norm_stage& to, std::uint64_t pass_id,
                const tensor& dy) {
    return detail::request(self_, to.slave(), backward_atom_v, pass_id,
                           share(dy));
  }

  template <class... Ts>
  auto ask(const batch_norm_stage& to, Ts... xs) {
    return detail::request(self_, to.slave(), std::move(xs)...);
  }

  template <class Pending>
  static answer await_forward(Pending pending) {
    answer result;
    std::move(pending).receive(
        [&](const shared_tensor& y, std::uint64_t pass_id) {
          result.value = fetch(y);
          result.pass_id = pass_id;
        },
        [&](caf::error& reason) { result.reason = std::move(reason); });
    return result;
  }

  template <class Pending>
  static answer await_backward(Pending pending) {
    answer result;
    std::move(pending).receive(
        [&](const shared_tensor& dx) { result.value = fetch(dx); },
        [&](caf::error& reason) { result.reason = std::move(reason); });
    return result;
  }

  std::vector<double> read_state(const batch_norm_stage& from,
                                 std::string name) {
    std::vector<double> result;
    ask(from, read_state_atom_v, std::move(name))
        .receive(
            [&](const double_array& x) { result.assign(x.begin(), x.end()); },
            [&](const caf::error& reason) { FAIL(describe(reason)); });
    return result;
  }

private:
  caf::scoped_actor self_;
};

tensor make_tensor(const batch_norm_options& options, std::int64_t samples,
                   std::mt19937& random) {
  std::array<std::int64_t, 3> sizes{samples, options.channels, 4};
  tensor x{make_layout(options.type, sizes)};
  fill(x, random, 1, 2);
  return x;
}

constexpr double close = 1e-10; // the tolerance of float64

void check_near(const tensor& got, const tensor& want) {
  REQUIRE(got.layout.shape == want.layout.shape);
  reference::for_each({want}, [&](auto, auto, auto i) {
    if (!(std::abs(got.get(i) - want.get(i)) <= close))
      FAIL_CHECK("got " << got.get(i) << ", want " << want.get(i));
  });
}

/// What one device answers to the micro-batch `xs`, `dys`.
struct expectation {
  std::vector<tensor> y, dx;

  expectation(const batch_norm_options& options, const std::vector<tensor>& xs,
              const std::vector<tensor>& dys)
      : y{xs},
        dx{xs} {
    auto channels = static_cast<std::size_t>(options.channels);
    reference truth{options.eps, options.mode, std::vector<double>(channels, 1),
                    std::vector<double>(channels, 0)};
    truth.forward(xs);
    truth.backward(xs, dys);
    reference::for_each(xs, [&](auto c, auto r, auto i) {
      y[r].set(i, truth.y(c, xs[r].get(i)));
      dx[r].set(i, truth.dx(c, xs[r].get(i), dys[r].get(i)));
    });
  }
};

const batch_norm_options float64_options{
    .name = "bn", .channels = 3, .type = dtype::float64};

void train(client& c, const stages& net, bool on) {
  for (const auto& stage : net)
    c.ask(*stage, train_atom_v, on)
        .receive([] {},
                 [](const caf::error& reason) { FAIL(describe(reason)); });
}

/// Checks that a round works, with `x` for each copy.
/// @returns their pass ids.
std::vector<std::uint64_t> check_round(client& c, const stages& net,
                                       const tensor& x) {
  std::vector<decltype(c.forward(*net[0], x))> pending;
  for (const auto& stage : net)
    pending.push_back(c.forward(*stage, x));
  std::vector<std::uint64_t> pass_ids;
  for (auto& one : pending) {
    auto got = c.await_forward(std::move(one));
    CHECK(describe(got.reason) == describe({}));
    pass_ids.push_back(got.pass_id);
  }
  return pass_ids;
}

/// An actor system, a client in it, and random numbers.
struct stage_fixture : layer_fixture {
  /// Stages that know that they are copies of one layer.
  stages replicated(std::size_t count,
                    const batch_norm_options& options = float64_options) {
    auto result = make_stages(system, options, count);
    execute_replication_callbacks(result);
    return result;
  }

  client c{system};
  std::mt19937 random{1};
};

} // namespace

TEST_CASE_FIXTURE(stage_fixture, "slave actors answer as one device on the "
                                 "whole batch, with several micro-batches in "
                                 "flight") {
  constexpr std::size_t copies = 4;
  constexpr std::size_t micro_batches = 3;
  auto net = replicated(copies);
  std::vector<std::vector<tensor>> xs(micro_batches), dys(micro_batches);
  using forward_type = decltype(c.forward(*net[0], {}));
  using backward_type = decltype(c.backward(*net[0], 0, {}));
  std::vector<std::vector<forward_type>> forwards(micro_batches);
  for (std::size_t m = 0; m < micro_batches; ++m)
    for (std::size_t r = 0; r < copies; ++r) {
      xs[m].push_back(
          make_tensor(float64_options, 1 + std::int64_t(r), random));
      dys[m].push_back(
          make_tensor(float64_options, 1 + std::int64_t(r), random));
      forwards[m].push_back(c.forward(*net[r], xs[m][r]));
    }
  std::vector<std::vector<std::uint64_t>> pass_ids(micro_batches);
  for (std::size_t m = 0; m < micro_batches; ++m) {
    expectation want{float64_options, xs[m], dys[m]};
    for (std::size_t r = 0; r < copies; ++r) {
      auto got = c.await_forward(std::move(forwards[m][r]));
      REQUIRE(describe(got.reason) == describe({}));
      check_near(got.value, want.y[r]);
      pass_ids[m].push_back(got.pass_id);
    }
  }
  // Backward in the other order: a pass id says which pass is meant.
  for (std::size_t m = micro_batches; m-- > 0;) {
    std::vector<backward_type> backwards;
    for (std::size_t r = 0; r < copies; ++r)
      backwards.push_back(c.backward(*net[r], pass_ids[m][r], dys[m][r]));
    expectation want{float64_options, xs[m], dys[m]};
    for (std::size_t r = 0; r < copies; ++r) {
      auto got = c.await_backward(std::move(backwards[r]));
      REQUIRE(describe(got.reason) == describe({}));
      check_near(got.value, want.dx[r]);
    }
  }
  for (auto& stage : net)
    CHECK(c.read_state(*stage, "num_batches_tracked")[0] == micro_batches);
}

TEST_CASE_FIXTURE(stage_fixture,
                  "a wrong x that waits behind others is refused "
                  "in its turn, and they are answered") {
  auto net = replicated(2);
  auto wide = float64_options;
  wide.channels = 4;
  constexpr std::size_t good = 3;
  std::vector<std::vector<tensor>> xs;
  std::vector<std::vector<decltype(c.forward(*net[0], {}))>> pending(2);
  for (std::size_t m = 0; m <= good; ++m) {
    xs.push_back({make_tensor(m < good ? float64_options : wide, 2, random),
                  make_tensor(float64_options, 3, random)});
    for (std::size_t r = 0; r < 2; ++r)
      pending[r].push_back(c.forward(*net[r], xs[m][r]));
  }
  for (std::size_t m = 0; m < good; ++m) {
    expectation want{float64_options, xs[m], xs[m]};
    for (std::size_t r = 0; r < 2; ++r)
      check_near(c.await_forward(std::move(pending[r][m])).value, want.y[r]);
  }
  auto reason = [&](std::size_t r) {
    return c.await_forward(std::move(pending[r][good])).reason;
  };
  auto mine = reason(0);
  CHECK_MESSAGE(code_of(mine) == errc::shape_mismatch, describe(mine));
  auto others = reason(1);
  CHECK_MESSAGE(code_of(others) == errc::participant_failed, describe(others));
}

TEST_CASE_FIXTURE(stage_fixture, "many more slave actors than workers wait for "
                                 "each other: none blocks its worker") {
  auto copies = 8 * std::max(4U, std::thread::hardware_concurrency());
  auto net = replicated(copies);
  std::vector<tensor> xs;
  std::vector<decltype(c.forward(*net[0], {}))> pending;
  for (auto& stage : net) {
    xs.push_back(make_tensor(float64_options, 2, random));
    pending.push_back(c.forward(*stage, xs.back()));
  }
  expectation want{float64_options, xs, xs};
  for (std::size_t r = 0; r < net.size(); ++r)
    check_near(c.await_forward(std::move(pending[r])).value, want.y[r]);
}

TEST_CASE_FIXTURE(stage_fixture, "a slave actor and a thread are copies of one "
                                 "layer") {
  // One tree for each kind of copy.
  batch_norm_stage stage{system, float64_options};
  batch_norm_layer layer{system, float64_options};
  callback_context context{"", 2};
  stage.on_data_parallel_replicate(context, 0);
  layer.on_data_parallel_replicate(context, 1);
  std::vector xs{make_tensor(float64_options, 3, random),
                 make_tensor(float64_options, 2, random)};
  expectation want{float64_options, xs, xs};
  auto pending = c.forward(stage, xs[0]);
  tensor y{xs[1].layout};
  auto tape = layer.forward(xs[1].view(), y.view());
  auto first = c.await_forward(std::move(pending));
  check_near(first.value, want.y[0]);
  check_near(y, want.y[1]);
  auto pending_dx = c.backward(stage, first.pass_id, xs[0]);
  layer.backward(xs[1].view(), xs[1].view(), tape, y.view());
  check_near(c.await_backward(std::move(pending_dx)).value, want.dx[0]);
  check_near(y, want.dx[1]);
}

TEST_CASE_FIXTURE(stage_fixture, "one copy needs no master, and evaluation no "
                                 "other copy") {
  auto alone = replicated(1);
  std::vector xs{make_tensor(float64_options, 3, random)};
  expectation want{float64_options, xs, xs};
  auto got = c.await_forward(c.forward(*alone[0], xs[0]));
  check_near(got.value, want.y[0]);
  check_near(c.await_backward(c.backward(*alone[0], got.pass_id, xs[0])).value,
             want.dx[0]);

  auto two = replicated(2);
  c.ask(*two[1], train_atom_v, false).receive([] {}, [](const caf::error&) {});
  got = c.await_forward(c.forward(*two[1], xs[0]));
  CHECK(got.pass_id == 0);
  auto inv_std = 1 / std::sqrt(1 + 1e-5);
  reference::for_each(xs, [&](auto, auto, auto i) {
    CHECK(std::abs(got.value.get(i) - xs[0].get(i) * inv_std) <= close);
  });
}

TEST_CASE_FIXTURE(stage_fixture, "a slave actor tells what its master has "
                                 "counted") {
  auto rounds_of = [&](const batch_norm_stage& stage) {
    std::uint64_t result = 0;
    c.ask(stage, get_metrics_atom_v)
        .receive([&](const sync_metrics& x) { result = x.rounds; },
                 [](const caf::error& e) { FAIL(describe(e)); });
    return result;
  };
  auto two = replicated(2);
  auto x = make_tensor(float64_options, 3, random);
  auto first = c.forward(*two[0], x);
  auto second = c.forward(*two[1], x);
  std::ignore = c.await_forward(std::move(first));
  std::ignore = c.await_forward(std::move(second));
  CHECK(rounds_of(*two[0]) == 1);
  CHECK(rounds_of(*two[1]) == 1);
  auto alone = replicated(1);
  CHECK(rounds_of(*alone[0]) == 0);
}

TEST_CASE_FIXTURE(stage_fixture, "a slave actor's state is read and written by "
                                 "messages, and comes back on release") {
  auto net = replicated(1);
  auto& stage = *net[0];
  CHECK(outcome_of([&] { std::ignore = stage.replica(); }).first
        == errc::invalid_argument);
  auto ok = describe({});
  auto write = [&](std::string name, double_array values) {
    caf::error result;
    c.ask(stage, write_state_atom_v, std::move(name), std::move(values))
        .receive([] {},
                 [&](caf::error& reason) { result = std::move(reason); });
    return describe(result);
  };
  CHECK(write("weight", {2, 3, 4}) == ok);
  CHECK(c.read_state(stage, "weight") == std::vector<double>{2, 3, 4});
  CHECK(c.read_state(stage, "bias.grad") == std::vector<double>{0, 0, 0});
  CHECK(write("weight", {2})
        == "shape_mismatch: layer bn: weight: expected 3 elements, got 1");
  CHECK(write("wait", {2}) == "invalid_argument: layer bn: has no array wait");
  CHECK(write("num_batches_tracked", {0x1p53}) == ok);
  CHECK(write("num_batches_tracked", {0x1p53 + 2})
        == "invalid_argument: layer bn: num_batches_tracked: expected a whole "
           "number from 0 to 2^53, got 9007199254740994");
  CHECK(c.read_state(stage, "num_batches_tracked")[0] == 0x1p53);
  release_replicas(net);
  CHECK(read(stage.replica().state(), "weight")
        == std::vector<double>{2, 3, 4});
}

TEST_CASE_FIXTURE(stage_fixture, "what goes wrong in one slave actor is told "
                                 "to its client and to all other copies, and "
                                 "the same modules work again") {
  auto net = make_stages(system, float64_options, 3);
  CHECK(outcome_of([&] { std::ignore = net[0]->slave(); }).first
        == errc::unregistered);
  auto x = make_tensor(float64_options, 2, random);
  auto wide = float64_options;
  wide.channels = 4;
  auto bad = make_tensor(wide, 2, random);
  for (std::size_t guilty = 0; guilty < 3; ++guilty) {
    execute_replication_callbacks(net);
    CHECK(outcome_of([&] { execute_replication_callbacks(net); }).first
          == errc::duplicate_identifier);
    std::vector<decltype(c.forward(*net[0], {}))> pending;
    for (std::size_t r = 0; r < 3; ++r)
      pending.push_back(c.forward(*net[r], r == guilty ? bad : x));
    for (std::size_t r = 0; r < 3; ++r) {
      auto got = c.await_forward(std::move(pending[r]));
      CHECK(code_of(got.reason)
            == (r == guilty ? errc::shape_mismatch : errc::participant_failed));
      CHECK(contains(describe(got.reason), "expected 3 channels"));
    }
    release_replicas(net);
  }
  execute_replication_callbacks(net);
  std::vector<decltype(c.forward(*net[0], {}))> pending;
  for (auto& stage : net)
    pending.push_back(c.forward(*stage, x));
  expectation want{float64_options, {x, x, x}, {x, x, x}};
  for (std::size_t r = 0; r < 3; ++r)
    check_near(c.await_forward(std::move(pending[r])).value, want.y[r]);
}

TEST_CASE_FIXTURE(stage_fixture, "passes behind one whose round fails are "
                                 "answered") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  auto first = c.forward(*net[0], x);
  auto second = c.forward(*net[0], x);
  net[1]->on_data_parallel_failure("no memory");
  CHECK(code_of(c.await_forward(std::move(first)).reason)
        == errc::participant_failed);
  auto late = c.await_forward(std::move(second)).reason;
  CHECK(code_of(late) == errc::stale);
  CHECK(contains(describe(late), "replica 1 gave up: no memory"));
}

TEST_CASE_FIXTURE(stage_fixture, "a copy whose registration is refused is not "
                                 "replicated, and can be with another "
                                 "identifier") {
  auto net = make_stages(system, float64_options, 3);
  callback_context context{"", 3};
  net[0]->on_data_parallel_replicate(context, 0);
  net[1]->on_data_parallel_replicate(context, 1);
  auto replicate = [&](std::int64_t id) {
    return outcome_of([&] { net[2]->on_data_parallel_replicate(context, id); })
        .first;
  };
  CHECK(replicate(1) == errc::duplicate_identifier);
  CHECK(outcome_of([&] { std::ignore = net[2]->slave(); }).first
        == errc::unregistered);
  REQUIRE(replicate(2) == errc::none);
  check_round(c, net, make_tensor(float64_options, 2, random));
}

TEST_CASE_FIXTURE(stage_fixture,
                  "a copy whose master is gone when it registers "
                  "names the layer") {
  auto check = [](auto& first, auto& second) {
    callback_context context{"", 2};
    first.on_data_parallel_replicate(context, 0);
    first.on_data_parallel_release();
    auto got =
        outcome_of([&] { second.on_data_parallel_replicate(context, 1); });
    CHECK(got.first == errc::master_down);
    CHECK_MESSAGE(got.second.starts_with("layer bn"), got.second);
  };
  batch_norm_stage stage{system, float64_options};
  auto other_stage = stage.clone();
  check(stage, other_stage);
  batch_norm_layer layer{system, float64_options};
  auto other_layer = layer.clone();
  check(layer, other_layer);
}

TEST_CASE_FIXTURE(stage_fixture, "a refused request that needs no other copy "
                                 "concerns its asker only") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  auto wide = float64_options;
  wide.channels = 4;
  train(c, net, false);
  auto bad = make_tensor(wide, 2, random);
  CHECK(code_of(c.await_forward(c.forward(*net[1], bad)).reason)
        == errc::shape_mismatch);
  auto pass_id = c.await_forward(c.forward(*net[1], x)).pass_id;
  CHECK(code_of(c.await_backward(c.backward(*net[1], pass_id, x)).reason)
        == errc::invalid_argument);
  train(c, net, true);
  check_round(c, net, x);
}

TEST_CASE_FIXTURE(stage_fixture, "a tensor that is none is refused as one of "
                                 "another shape, and the copy works on") {
  auto net = replicated(1);
  auto x = make_tensor(float64_options, 2, random);
  const std::string expected = "expected 3 channels, got [N, C, S] = [0, 0, 1]";
  const std::string call = "shape_mismatch: layer bn: forward: ";
  for (auto on : {true, false}) {
    train(c, net, on);
    auto pending = c.ask(*net[0], forward_atom_v, shared_tensor{});
    CHECK(describe(c.await_forward(std::move(pending)).reason)
          == call + "x: " + expected);
    caf::error reason;
    c.ask(*net[0], forward_atom_v, shared_tensors{{share(x), {}}})
        .receive([](const shared_tensors&, std::uint64_t) {},
                 [&](caf::error& why) { reason = std::move(why); });
    CHECK(describe(reason) == call + "x[1]: " + expected);
  }
  train(c, net, true);
  auto pass_id = c.await_forward(c.forward(*net[0], x)).pass_id;
  auto pending = c.ask(*net[0], backward_atom_v, pass_id, shared_tensor{});
  CHECK(describe(c.await_backward(std::move(pending)).reason)
        == "shape_mismatch: layer bn: backward: dy: " + expected);
  CHECK(describe(c.await_backward(c.backward(*net[0], pass_id, x)).reason)
        == describe({}));
}

TEST_CASE_FIXTURE(stage_fixture, "a pass ends as it began, in training, also "
                                 "where evaluation is asked for meanwhile") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  auto first = c.forward(*net[0], x);
  // When it is answered, that copy waits for the other.
  c.ask(*net[0], train_atom_v, false)
      .receive([] {}, [](const caf::error& why) { FAIL(describe(why)); });
  auto second = c.forward(*net[1], x);
  auto pass_ids = std::array{c.await_forward(std::move(first)).pass_id,
                             c.await_forward(std::move(second)).pass_id};
  REQUIRE(pass_ids == std::array<std::uint64_t, 2>{1, 1});
  auto backward = std::array{c.backward(*net[0], pass_ids[0], x),
                             c.backward(*net[1], pass_ids[1], x)};
  for (auto& pending : backward)
    CHECK(describe(c.await_backward(std::move(pending)).reason)
          == describe({}));
  CHECK(c.await_forward(c.forward(*net[0], x)).pass_id == 0);
}

TEST_CASE_FIXTURE(stage_fixture, "online, a refused backward pass concerns its "
                                 "asker only") {
  auto online = float64_options;
  online.online = true;
  auto net = replicated(2, online);
  auto x = make_tensor(online, 2, random);
  for (std::uint64_t pass_id : check_round(c, net, x))
    CHECK(code_of(c.await_backward(c.backward(*net[0], pass_id, x)).reason)
          == errc::invalid_argument);
  CHECK(code_of(c.await_backward(c.backward(*net[1], 7, x)).reason)
        == errc::invalid_argument);
  check_round(c, net, x);
}

TEST_CASE_FIXTURE(stage_fixture,
                  "a backward pass with a wrong pass id, at which "
                  "the other copies may be, is told to them") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  auto pass_ids = check_round(c, net, x);
  auto right = c.backward(*net[0], pass_ids[0], x);
  auto wrong = c.backward(*net[1], pass_ids[1] + 7, x);
  CHECK(code_of(c.await_backward(std::move(wrong)).reason)
        == errc::invalid_argument);
  CHECK(code_of(c.await_backward(std::move(right)).reason)
        == errc::participant_failed);
}

TEST_CASE_FIXTURE(stage_fixture, "a pass id is good for one backward pass, or "
                                 "is forgotten") {
  auto net = replicated(1);
  auto x = make_tensor(float64_options, 2, random);
  auto pass_id = c.await_forward(c.forward(*net[0], x)).pass_id;
  auto code = [&](std::uint64_t t) {
    return code_of(c.await_backward(c.backward(*net[0], t, x)).reason);
  };
  CHECK(code(pass_id + 1) == errc::invalid_argument);
  CHECK(code(pass_id) == std::nullopt);
  CHECK(code(pass_id) == errc::invalid_argument);
  pass_id = c.await_forward(c.forward(*net[0], x)).pass_id;
  c.ask(*net[0], forget_atom_v, pass_id).receive([] {}, [](caf::error&) {});
  CHECK(code(pass_id) == errc::invalid_argument);
}

TEST_CASE_FIXTURE(stage_fixture, "a slave that has ended keeps no tensor of a "
                                 "pass id, whoever has its handle") {
  auto net = replicated(1);
  auto x = std::make_shared<tensor>(make_tensor(float64_options, 2, random));
  auto slave = net[0]->slave();
  auto pending = c.ask(*net[0], forward_atom_v, shared_tensor{x->view(), x});
  CHECK(c.await_forward(std::move(pending)).pass_id != 0);
  std::weak_ptr<tensor> watch = x;
  x.reset();
  CHECK_FALSE(watch.expired());
  release_replicas(net);
  CHECK(watch.expired());
}

TEST_CASE_FIXTURE(stage_fixture, "a pass id whose backward pass waits for the "
                                 "other copies is used") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  std::vector<decltype(c.forward(*net[0], {}))> forward;
  for (auto& stage : net)
    forward.push_back(c.forward(*stage, x));
  std::vector<std::uint64_t> pass_ids;
  for (auto& pending : forward)
    pass_ids.push_back(c.await_forward(std::move(pending)).pass_id);
  auto first = c.backward(*net[0], pass_ids[0], x);
  std::optional<errc> refusal;
  c.ask(*net[0], forget_atom_v, pass_ids[0])
      .receive([] {}, [&](const caf::error& why) { refusal = code_of(why); });
  CHECK(refusal == errc::invalid_argument);
  auto second = c.backward(*net[1], pass_ids[1], x);
  CHECK(code_of(c.await_backward(std::move(first)).reason) == std::nullopt);
  CHECK(code_of(c.await_backward(std::move(second)).reason) == std::nullopt);
}

TEST_CASE_FIXTURE(stage_fixture, "slave actors that go backward through "
                                 "different passes are told so, also behind "
                                 "relays") {
  for (std::int64_t fan_in : {16, 2}) {
    auto options = float64_options;
    options.fan_in = fan_in;
    auto net = replicated(5, options);
    auto x = make_tensor(options, 2, random);
    std::vector<std::uint64_t> pass_ids;
    for (int pass = 0; pass < 2; ++pass) {
      std::vector<decltype(c.forward(*net[0], {}))> pending;
      for (auto& stage : net)
        pending.push_back(c.forward(*stage, x));
      pass_ids.clear();
      for (auto& one : pending)
        pass_ids.push_back(c.await_forward(std::move(one)).pass_id);
    }
    --pass_ids[3];
    std::vector<decltype(c.backward(*net[0], 0, {}))> pending;
    for (std::size_t r = 0; r < net.size(); ++r)
      pending.push_back(c.backward(*net[r], pass_ids[r], x));
    for (auto& one : pending) {
      auto reason = c.await_backward(std::move(one)).reason;
      CHECK(code_of(reason) == errc::invalid_argument);
      CHECK(contains(describe(reason), "of call 1 of the layer"));
      CHECK(contains(describe(reason), "of call 2;"));
    }
  }
}

TEST_CASE_FIXTURE(stage_fixture, "passes that a slave actor has not finished "
                                 "when it is released are answered") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  std::vector<decltype(c.forward(*net[0], {}))> pending;
  pending.push_back(c.forward(*net[1], x));
  pending.push_back(c.forward(*net[1], x));
  release_replicas(net);
  for (auto& p : pending) {
    auto reason = c.await_forward(std::move(p)).reason;
    CAPTURE(describe(reason));
    auto code = code_of(reason);
    // Of a request that was still in the mailbox CAF itself tells the sender.
    CHECK((code == errc::participant_down || code == errc::master_down
           || reason == caf::sec::request_receiver_down));
  }
}

TEST_CASE_FIXTURE(stage_fixture, "a slave whose master is gone says so, under "
                                 "its layer's name") {
  auto net = replicated(2);
  auto x = make_tensor(float64_options, 2, random);
  // Answered when the master has exited: the next request finds none.
  auto waiting = c.forward(*net[1], x);
  net[0]->on_data_parallel_release();
  CHECK(code_of(c.await_forward(std::move(waiting)).reason)
        == errc::master_down);
  auto later = describe(c.await_forward(c.forward(*net[1], x)).reason);
  CHECK_MESSAGE(later.starts_with("master_down: layer bn: replica 1: the "
                                  "master is down ("),
                later);
  std::string metrics;
  c.ask(*net[1], get_metrics_atom_v)
      .receive([](const sync_metrics&) {},
               [&](const caf::error& reason) { metrics = describe(reason); });
  CHECK_MESSAGE(metrics.starts_with("master_down: layer bn: the master is "
                                    "down ("),
                metrics);
}

TEST_CASE("a tensor arrives at another node with the same bits, without gaps") {
  std::mt19937 random{1};
  for (auto type :
       {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16}) {
    std::array<std::int64_t, 3> sizes{3, 2, 5};
    auto layout = make_layout(type, sizes, memory_format::channels_last);
    layout.sample_stride += 7;
    tensor x{layout};
    fill(x, random);
    auto bytes = test::serialize(share(x));
    shared_tensor y;
    REQUIRE(test::deserialize(bytes, y));
    CHECK(y.view().shape() == layout.shape);
    CHECK(y.view().type() == type);
    CHECK(y.view().format() == layout.format);
    CHECK(y.view().sample_stride() == 10);
    auto got = fetch(y);
    for (std::int64_t n = 0; n < 3; ++n)
      for (std::int64_t c = 0; c < 2; ++c)
        for (std::int64_t s = 0; s < 5; ++s)
          CHECK(got.get(got.at(n, c, s)) == x.get(x.at(n, c, s)));
    // Every cut is noticed.
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      shared_tensor z;
      CHECK(!test::deserialize(std::span{bytes}.first(n), z));
    }
  }
}

TEST_CASE("a tensor header that lies is refused") {
  using header = detail::tensor_header;
  auto parse = [](header x, std::uint64_t bytes) {
    return detail::parse_tensor_header(x, bytes).has_value();
  };
  CHECK(parse({0, 0, 2, 3, 4}, 96));
  CHECK(parse({0, 0, 0, 3, 4}, 0));
  CHECK(!parse({0, 0, 2, 3, 4}, 95));
  CHECK(!parse({4, 0, 2, 3, 4}, 96));
  CHECK(!parse({0, 2, 2, 3, 4}, 96));
  CHECK(!parse({-1, 0, 2, 3, 4}, 96));
  CHECK(!parse({0, 0, -2, 3, -4}, 96));
  CHECK(!parse({0, 0, 2, 0, 4}, 0));
  constexpr auto huge = std::int64_t{1} << 62;
  CHECK(!parse({0, 0, huge, huge, 4}, 0));
  // Empty, but long to walk through.
  CHECK(!parse({0, 0, huge, 3, 0}, 0));
  CHECK(!parse({0, 0, 0, huge, 4}, 0));
}
