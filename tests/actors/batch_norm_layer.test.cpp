#include "syncnorm/batch_norm_layer.hpp"

#include "tests/actors/batch_norm_reference.hpp"
#include "tests/actors/layer_copies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// Samples of each copy, and what stands behind them: C, spatial sizes.
struct batch {
  std::vector<std::int64_t> samples;
  std::int64_t channels = 0;
  /// One entry: the same for all copies.
  std::vector<std::vector<std::int64_t>> spatial{{}};
};

/// How far a result may be from the truth: `absolute` is what the statistics'
/// type leaves after sums of some thousand terms of size 1, `relative` half a
/// unit in the last place of the elements' type and a little for the factors.
struct tolerance {
  double absolute;
  double relative;
};

tolerance tolerance_of(dtype type) {
  switch (type) {
  case dtype::float64:
    return {1e-10, 1e-10};
  case dtype::float32:
    // libtorch's own for float32.
    return {1e-5, 1.3e-6};
  case dtype::float16:
    return {1e-5, 0x1p-11 + 1e-5};
  default:
    return {1e-5, 0x1p-8 + 1e-5};
  }
}

void check_near(double got, double want, const tolerance& t, double scale = 1) {
  auto distance = std::abs(got - want);
  // One assertion for many elements: doctest's are slow.
  if (!(distance <= scale * t.absolute + t.relative * std::abs(want)))
    FAIL_CHECK("got " << got << ", want " << want);
}

void check_near(const std::vector<double>& got, const std::vector<double>& want,
                const tolerance& t, double scale = 1) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    check_near(got[i], want[i], t, scale);
}

struct passes {
  std::vector<tensor> x, y, dy, dx;
};

passes make_passes(const batch_norm_options& options, const batch& b,
                   memory_format format, std::mt19937& random,
                   double mean = 0.5) {
  passes p;
  for (std::size_t r = 0; r < b.samples.size(); ++r) {
    std::vector sizes{b.samples[r], b.channels};
    const auto& spatial = b.spatial[b.spatial.size() == 1 ? 0 : r];
    sizes.insert(sizes.end(), spatial.begin(), spatial.end());
    auto layout = make_layout(options.type, sizes, format);
    for (auto* list : {&p.x, &p.y, &p.dy, &p.dx})
      list->emplace_back(layout);
    fill(p.x.back(), random, mean, 2);
    fill(p.dy.back(), random);
  }
  return p;
}

void run_passes(layers& copies, passes& p) {
  run_all(copies.size(), [&](std::size_t r) {
    auto tape = copies[r]->forward(p.x[r].view(), p.y[r].view());
    copies[r]->backward(p.dy[r].view(), p.x[r].view(), tape, p.dx[r].view());
  });
}

/// The running statistics of the truth, after some rounds.
struct running_reference {
  std::vector<double> mean, var;
  std::int64_t batches = 0;

  explicit running_reference(std::size_t channels)
      : mean(channels, 0),
        var(channels, 1) {}

  void update(const reference& truth, std::optional<double> momentum) {
    if (truth.count == 0)
      return;
    ++batches;
    auto m = momentum.value_or(1 / static_cast<double>(batches));
    auto n = static_cast<double>(truth.count);
    for (std::size_t c = 0; c < mean.size(); ++c) {
      mean[c] += m * (truth.mean[c] - mean[c]);
      if (truth.count > 1)
        var[c] += m * (truth.var[c] * n / (n - 1) - var[c]);
    }
  }
};

void check_passes(layers& copies, const passes& p, const reference& truth,
                  const tolerance& t) {
  reference::for_each(p.x, [&](auto c, auto r, auto i) {
    check_near(p.y[r].get(i), truth.y(c, p.x[r].get(i)), t);
    check_near(p.dx[r].get(i), truth.dx(c, p.x[r].get(i), p.dy[r].get(i)), t);
  });
  if (!copies[0]->replica().options().affine)
    return;
  std::vector<double> weight(truth.weight.size()), bias(weight.size());
  for (auto& copy : copies) {
    auto dw = read(copy->replica().gradients(), "weight");
    auto db = read(copy->replica().gradients(), "bias");
    for (std::size_t c = 0; c < weight.size(); ++c) {
      weight[c] += dw[c];
      bias[c] += db[c];
    }
  }
  auto want = truth.sum_dy_xmu;
  for (std::size_t c = 0; c < want.size(); ++c)
    want[c] *= truth.inv_std[c];
  // A sum of `count` products of size 1 grows as its square root.
  auto scale = std::sqrt(static_cast<double>(truth.count) + 1);
  check_near(weight, want, t, scale);
  check_near(bias, truth.sum_dy, t, scale);
}

/// What an optimizer does: the same step on each copy, by the summed gradients.
void step(layers& copies, reference& truth) {
  for (const auto* name : {"weight", "bias"}) {
    auto values = read(copies[0]->replica().state(), name);
    if (values.empty())
      continue;
    for (auto& copy : copies) {
      auto gradient = read(copy->replica().gradients(), name);
      for (std::size_t c = 0; c < values.size(); ++c)
        values[c] -= 1e-3 * gradient[c];
    }
    for (auto& copy : copies)
      write(copy->replica().state(), name, values);
    (std::string{name} == "weight" ? truth.weight : truth.bias) =
        read(copies[0]->replica().state(), name);
  }
  for (auto& copy : copies)
    copy->replica().zero_gradients();
}

void check_training(caf::actor_system& system, batch_norm_options options,
                    const batch& b,
                    memory_format format = memory_format::channels_first,
                    double mean = 0.5) {
  options.channels = b.channels;
  auto channels = static_cast<std::size_t>(b.channels);
  auto t = tolerance_of(options.type);
  auto copies = make_copies(system, options, b.samples.size());
  execute_replication_callbacks(copies);
  std::mt19937 random{b.samples.size() * 31 + channels};
  reference truth{options.eps, options.mode, std::vector<double>(channels, 1),
                  std::vector<double>(channels, 0)};
  running_reference running{channels};
  for (int i = 0; i < 3; ++i) {
    CAPTURE(i);
    auto p = make_passes(options, b, format, random, mean);
    run_passes(copies, p);
    truth.forward(p.x);
    truth.backward(p.x, p.dy);
    running.update(truth, options.momentum);
    check_passes(copies, p, truth, t);
    for (auto& copy : copies) {
      auto state = copy->replica().state();
      if (options.track_running_stats) {
        check_near(read(state, "running_mean"), running.mean, t);
        check_near(read(state, "running_var"), running.var, t);
        CHECK(read(state, "num_batches_tracked")[0] == running.batches);
      }
      CHECK(copy->messages_sent() == (copies.size() == 1 ? 0 : 2 * (i + 1)));
    }
    step(copies, truth);
  }
}

batch even(std::int64_t copies, std::int64_t samples, std::int64_t channels,
           std::vector<std::int64_t> spatial = {}) {
  return {std::vector<std::int64_t>(copies, samples), channels, {spatial}};
}

constexpr std::array all_types{dtype::float32, dtype::float64, dtype::float16,
                               dtype::bfloat16};

} // namespace

TEST_CASE_FIXTURE(layer_fixture, "copies equal one device on the whole batch, "
                                 "forward, backward and running statistics, "
                                 "over several steps, in every type") {
  for (auto type : all_types) {
    CAPTURE(to_string(type));
    batch_norm_options options{.name = "bn", .type = type};
    check_training(system, options, even(4, 4, 10));
    check_training(system, options, even(4, 4, 10, {16, 16}));
    check_training(system, options, even(4, 2, 4));
    check_training(system, options, even(3, 2, 2, {4, 4}));
    check_training(system, options, even(3, 2, 2, {4, 4, 4}));
    check_training(system, options, even(4, 6, 5, {6, 4, 4}));
    check_training(system, options, even(4, 8, 10, {40, 40}));
  }
}

TEST_CASE_FIXTURE(layer_fixture, "any number of copies from 1 to 8") {
  for (std::int64_t copies = 1; copies <= 8; ++copies) {
    CAPTURE(copies);
    check_training(system, {.type = dtype::float64}, even(copies, 3, 7, {5}));
  }
}

TEST_CASE_FIXTURE(layer_fixture, "channels last") {
  for (auto type : all_types)
    check_training(system, {.type = type}, even(4, 2, 9, {5, 3}),
                   memory_format::channels_last);
}

TEST_CASE_FIXTURE(layer_fixture, "unequal batches, unequal spatial sizes, one "
                                 "sample a copy, an empty copy") {
  for (auto type : {dtype::float32, dtype::float64}) {
    batch_norm_options options{.type = type};
    check_training(system, options, {{2, 3, 4, 5}, 6, {{3, 3}}});
    check_training(system, options, {{2, 2, 2}, 6, {{3, 3}, {1}, {7, 2}}});
    check_training(system, options, even(4, 1, 5));
    check_training(system, options, {{2, 0, 3}, 5, {{4}}});
    check_training(system, options, {{0, 3}, 5, {{4}}});
    check_training(system, options, {{0, 0, 1, 0}, 5, {{4}}});
    check_training(system, options, {{1, 0}, 5, {{}}});
  }
}

TEST_CASE_FIXTURE(layer_fixture, "a batch of no elements at all changes no "
                                 "statistics") {
  check_training(system, {.type = dtype::float64}, even(3, 0, 4, {2}));
  check_training(system, {.type = dtype::float64}, even(1, 2, 4, {0}));
}

TEST_CASE_FIXTURE(layer_fixture, "every option") {
  auto b = even(3, 3, 6, {4});
  for (auto type : {dtype::float32, dtype::float64}) {
    check_training(system, {.type = type, .momentum = std::nullopt}, b);
    check_training(system, {.type = type, .momentum = 1.0}, b);
    check_training(system, {.type = type, .affine = false}, b);
    check_training(system, {.type = type, .track_running_stats = false}, b);
    check_training(system, {.type = type, .eps = 0.5}, b);
    check_training(system, {.type = type, .mode = eps_mode::clamp}, b);
  }
}

TEST_CASE_FIXTURE(layer_fixture, "a clamped variance is a constant: nothing "
                                 "flows back through it") {
  // Deviations of 2: some above and some below the bound of the variance.
  check_training(system,
                 {.type = dtype::float64, .eps = 4, .mode = eps_mode::clamp},
                 even(2, 3, 16, {4}));
}

TEST_CASE_FIXTURE(layer_fixture, "a mean that is large beside the deviation "
                                 "costs no digits of the variance") {
  // x is rounded to float32 before both sides see it; y then has the error of
  // x - mean, half a unit in the last place of 10^4, over a deviation of 2.
  auto copies = make_copies(system, {.channels = 3}, 4);
  execute_replication_callbacks(copies);
  std::mt19937 random{7};
  auto p = make_passes(copies[0]->replica().options(), even(4, 64, 3, {9}),
                       memory_format::channels_first, random, 1e4);
  run_passes(copies, p);
  reference truth{1e-5, eps_mode::plus, {1, 1, 1}, {0, 0, 0}};
  truth.forward(p.x);
  reference::for_each(p.x, [&](auto c, auto r, auto i) {
    check_near(p.y[r].get(i), truth.y(c, p.x[r].get(i)), {5e-4, 0});
  });
}

TEST_CASE_FIXTURE(layer_fixture, "evaluation uses the running statistics and "
                                 "sends no message") {
  auto copies = make_copies(system, {.channels = 5, .type = dtype::float64}, 3);
  execute_replication_callbacks(copies);
  std::mt19937 random{3};
  auto p = make_passes(copies[0]->replica().options(), even(3, 4, 5, {2}),
                       memory_format::channels_first, random);
  run_passes(copies, p);
  for (auto& copy : copies) {
    copy->replica().train(false);
    copy->replica().zero_gradients();
  }
  auto& first = *copies[0];
  auto mean = read(first.replica().state(), "running_mean");
  auto var = read(first.replica().state(), "running_var");
  // One copy alone, in this thread: it waits for nobody.
  auto tape = first.forward(p.x[0].view(), p.y[0].view());
  first.backward(p.dy[0].view(), p.x[0].view(), tape, p.dx[0].view());
  CHECK(first.messages_sent() == 2);
  CHECK(read(first.replica().state(), "num_batches_tracked")[0] == 1);
  std::vector<double> weight_gradient(5);
  reference::for_each({p.x[0]}, [&](auto c, auto, auto i) {
    auto inv_std = 1 / std::sqrt(var[c] + 1e-5);
    auto x = p.x[0].get(i);
    auto dy = p.dy[0].get(i);
    weight_gradient[c] += dy * (x - mean[c]) * inv_std;
    check_near(p.y[0].get(i), (x - mean[c]) * inv_std, {1e-12, 1e-12});
    check_near(p.dx[0].get(i), dy * inv_std, {1e-12, 1e-12});
  });
  check_near(read(first.replica().gradients(), "weight"), weight_gradient,
             {1e-12, 1e-12});
}

TEST_CASE_FIXTURE(layer_fixture, "a frozen layer normalizes as in evaluation "
                                 "while it trains, and changes nothing") {
  auto copies = make_copies(
      system, {.channels = 4, .type = dtype::float64, .frozen = true}, 2);
  execute_replication_callbacks(copies);
  for (auto& copy : copies)
    write(copy->replica().state(), "running_mean", {1, 2, 3, 4});
  std::mt19937 random{3};
  auto p = make_passes(copies[0]->replica().options(), even(2, 3, 4, {2}),
                       memory_format::channels_first, random);
  run_passes(copies, p);
  reference::for_each(p.x, [&](auto c, auto r, auto i) {
    auto inv_std = 1 / std::sqrt(1 + 1e-5);
    check_near(p.y[r].get(i),
               (p.x[r].get(i) - static_cast<double>(c + 1)) * inv_std,
               {1e-12, 1e-12});
    check_near(p.dx[r].get(i), p.dy[r].get(i) * inv_std, {1e-12, 1e-12});
  });
  for (auto& copy : copies) {
    CHECK(copy->messages_sent() == 0);
    CHECK(copy->replica().gradients().empty());
    CHECK(read(copy->replica().state(), "running_mean")
          == std::vector<double>{1, 2, 3, 4});
    CHECK(read(copy->replica().state(), "num_batches_tracked")[0] == 0);
  }
}

TEST_CASE_FIXTURE(layer_fixture, "without running statistics, evaluation uses "
                                 "this replica's batch and sends no message") {
  auto copies = make_copies(
      system,
      {.channels = 4, .type = dtype::float64, .track_running_stats = false}, 2);
  execute_replication_callbacks(copies);
  std::mt19937 random{3};
  auto p = make_passes(copies[0]->replica().options(), even(2, 3, 4, {2}),
                       memory_format::channels_first, random);
  copies[1]->replica().train(false);
  auto tape = copies[1]->forward(p.x[1].view(), p.y[1].view());
  copies[1]->backward(p.dy[1].view(), p.x[1].view(), tape, p.dx[1].view());
  CHECK(copies[1]->messages_sent() == 0);
  CHECK(copies[1]->replica().state().size() == 2);
  reference truth{1e-5, eps_mode::plus, {1, 1, 1, 1}, {0, 0, 0, 0}};
  std::vector xs{p.x[1]};
  std::vector dys{p.dy[1]};
  truth.forward(xs);
  truth.backward(xs, dys);
  reference::for_each(xs, [&](auto c, auto, auto i) {
    check_near(p.y[1].get(i), truth.y(c, xs[0].get(i)), {1e-10, 1e-10});
    check_near(p.dx[1].get(i), truth.dx(c, xs[0].get(i), dys[0].get(i)),
               {1e-10, 1e-10});
  });
}

TEST_CASE_FIXTURE(layer_fixture, "state stands under PyTorch's names, as far "
                                 "as there is any") {
  auto names_of = [&](batch_norm_options options) {
    options.channels = 2;
    batch_norm_layer layer{system, options};
    std::vector<std::string> result;
    for (const auto& x : layer.replica().state())
      result.push_back(x.name);
    return result;
  };
  using names = std::vector<std::string>;
  CHECK(names_of({})
        == names{"weight", "bias", "running_mean", "running_var",
                 "num_batches_tracked"});
  CHECK(names_of({.affine = false})
        == names{"running_mean", "running_var", "num_batches_tracked"});
  CHECK(names_of({.track_running_stats = false}) == names{"weight", "bias"});
}

TEST_CASE_FIXTURE(layer_fixture, "the results are the same bits in every run, "
                                 "whatever the order of arrival") {
  constexpr std::size_t count = 5;
  std::vector<std::vector<std::byte>> first;
  for (int order = 0; order < 10; ++order) {
    auto copies = make_copies(system, {.channels = 70}, count);
    execute_replication_callbacks(copies);
    std::mt19937 random{11};
    auto p = make_passes(copies[0]->replica().options(),
                         {{3, 1, 4, 1, 5}, 70, {{9}}},
                         memory_format::channels_first, random, 100);
    std::vector<std::size_t> who(count);
    std::iota(who.begin(), who.end(), 0);
    std::shuffle(who.begin(), who.end(), std::mt19937(order));
    // Each starts when the one before it in this order has.
    std::vector<future_result<bool>> go(count);
    run_all(count, [&](std::size_t i) {
      auto r = who[i];
      if (i != 0)
        std::ignore = go[i].get();
      if (i + 1 < count)
        std::ignore = go[i + 1].put(true);
      auto tape = copies[r]->forward(p.x[r].view(), p.y[r].view());
      copies[r]->backward(p.dy[r].view(), p.x[r].view(), tape, p.dx[r].view());
    });
    std::vector<std::vector<std::byte>> results;
    for (std::size_t r = 0; r < count; ++r) {
      results.push_back(p.y[r].bytes);
      results.push_back(p.dx[r].bytes);
    }
    if (order == 0)
      first = results;
    else
      CHECK(results == first);
  }
}

TEST_CASE_FIXTURE(layer_fixture, "several layers work side by side, one after "
                                 "the other and back") {
  constexpr std::size_t count = 4;
  constexpr std::size_t depth = 3;
  std::vector<layers> net;
  for (std::size_t i = 0; i < depth; ++i) {
    net.push_back(make_copies(system,
                              {.name = "bn" + std::to_string(i),
                               .channels = 3,
                               .type = dtype::float64},
                              count));
    execute_replication_callbacks(net.back());
    for (auto& copy : net.back())
      write(copy->replica().state(), "weight", {0.5, 2, 3});
  }
  std::mt19937 random{5};
  auto b = even(count, 2, 3, {2});
  auto p = make_passes(net[0][0]->replica().options(), b,
                       memory_format::channels_first, random);
  run_all(count, [&](std::size_t r) {
    std::vector<tensor> xs{p.x[r]};
    std::vector<batch_norm_tape> tapes;
    for (auto& stage : net) {
      xs.push_back(p.x[r]);
      tapes.push_back(
          stage[r]->forward(xs[xs.size() - 2].view(), xs.back().view()));
    }
    auto dy = p.dy[r];
    for (std::size_t i = depth; i-- > 0;)
      net[i][r]->backward(dy.view(), xs[i].view(), tapes[i], dy.view());
    p.y[r] = xs.back();
    p.dx[r] = dy;
  });
  std::vector<reference> truths;
  auto xs = p.x;
  std::vector<std::vector<tensor>> inputs;
  for (std::size_t k = 0; k < depth; ++k) {
    auto& truth = truths.emplace_back();
    truth.weight = {0.5, 2, 3};
    truth.bias = {0, 0, 0};
    truth.forward(xs);
    inputs.push_back(xs);
    reference::for_each(inputs.back(), [&](auto c, auto r, auto i) {
      xs[r].set(i, truth.y(c, inputs.back()[r].get(i)));
    });
  }
  auto dys = p.dy;
  for (std::size_t k = depth; k-- > 0;) {
    truths[k].backward(inputs[k], dys);
    auto before = dys;
    reference::for_each(before, [&](auto c, auto r, auto i) {
      dys[r].set(i, truths[k].dx(c, inputs[k][r].get(i), before[r].get(i)));
    });
  }
  reference::for_each(xs, [&](auto, auto r, auto i) {
    check_near(p.y[r].get(i), xs[r].get(i), {1e-10, 1e-10});
    check_near(p.dx[r].get(i), dys[r].get(i), {1e-10, 1e-10});
  });
}

namespace {

// begin: network
/// A network of two layers.
struct network {
  batch_norm_layer first;
  batch_norm_layer second;

  std::vector<std::pair<std::string, batch_norm_layer*>> children() {
    return {{"first", &first}, {"second", &second}};
  }
};
// end: network

} // namespace

TEST_CASE_FIXTURE(layer_fixture, "a layer that is assigned to itself stays as "
                                 "it is") {
  batch_norm_layer layer{system, {.channels = 1, .type = dtype::float64}};
  write(layer.replica().state(), "weight", {2});
  auto& same = layer;
  layer = std::move(same);
  CHECK(read(layer.replica().state(), "weight") == std::vector<double>{2});
}

TEST_CASE_FIXTURE(layer_fixture, "the layers of a network are replicated with "
                                 "it, each under a master of its own") {
  batch_norm_options options{.channels = 1, .type = dtype::float64};
  network one{{system, options}, {system, options}};
  network two{one.first.clone(), one.second.clone()};
  std::vector copies{&one, &two};
  execute_replication_callbacks(copies);
  double means[2][2] = {};
  run_all(2, [&](std::size_t r) {
    tensor x{make_layout(dtype::float64, std::array<std::int64_t, 2>{1, 1})};
    auto y = x;
    x.set(0, r == 0 ? 1 : 3);
    means[r][0] = copies[r]->first.forward(x.view(), y.view()).mean()[0];
    x.set(0, r == 0 ? 10 : 30);
    means[r][1] = copies[r]->second.forward(x.view(), y.view()).mean()[0];
  });
  for (const auto& mean : means) {
    CHECK(mean[0] == 2);
    CHECK(mean[1] == 20);
  }
  release_replicas(copies);
}

TEST_CASE_FIXTURE(layer_fixture, "two groups of two among four copies keep "
                                 "apart") {
  std::vector<layers> groups;
  for (int g = 0; g < 2; ++g) {
    groups.push_back(
        make_copies(system, {.channels = 3, .type = dtype::float64}, 2));
    execute_replication_callbacks(groups.back());
  }
  std::mt19937 random{5};
  auto p = make_passes(groups[0][0]->replica().options(), even(4, 2, 3, {2}),
                       memory_format::channels_first, random);
  run_all(4, [&](std::size_t r) {
    std::ignore = groups[r / 2][r % 2]->forward(p.x[r].view(), p.y[r].view());
  });
  for (std::size_t g = 0; g < 2; ++g) {
    reference truth{1e-5, eps_mode::plus, {1, 1, 1}, {0, 0, 0}};
    std::vector xs{p.x[2 * g], p.x[2 * g + 1]};
    truth.forward(xs);
    reference::for_each(xs, [&](auto c, auto r, auto i) {
      check_near(p.y[2 * g + r].get(i), truth.y(c, xs[r].get(i)),
                 {1e-10, 1e-10});
    });
  }
}
