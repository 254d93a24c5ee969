// A layer's gradients as tensors: of which of its own, whose memory, how many
// digits.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"

#include <initializer_list>
#include <utility>

namespace syncnorm::nn::test {

namespace {

/// Output, then gradients of a weighted sum by `inputs`.
template <class Layer>
std::vector<Tensor> pass_of(Layer& layer, const Tensor& x, const Tensor& dy,
                            bool create_graph = false) {
  auto y = layer->forward(x);
  std::vector<Tensor> inputs{x};
  for (const auto& own : {layer->weight, layer->bias})
    if (own.defined())
      inputs.push_back(own);
  auto grads =
      torch::autograd::grad({y}, inputs, {dy}, create_graph, create_graph);
  grads.insert(grads.begin(), y);
  return grads;
}

/// A layer and libtorch's, with a weight and a bias that show, and what both
/// give.
class twins {
public:
  explicit twins(const torch::nn::BatchNorm1dOptions& options)
      : plain{options},
        synced{SynchronizedBatchNorm1dOptions{options}} {
    torch::NoGradGuard no_grad;
    auto set = [](auto& layer) {
      layer->to(torch::kDouble);
      layer->weight.fill_(2);
      layer->bias.fill_(5);
    };
    set(plain);
    set(synced);
  }

  /// Takes a tensor away from both: for example `weight`.
  template <class F>
  void without(F member) {
    member(*plain) = Tensor{};
    member(*synced) = Tensor{};
  }

  void check() {
    for (auto training : {true, true, false}) {
      plain->train(training);
      synced->train(training);
      for (auto create_graph : {false, true})
        check_pass(create_graph);
    }
  }

  torch::nn::BatchNorm1d plain;
  SynchronizedBatchNorm1d synced;

private:
  void check_pass(bool create_graph) {
    CAPTURE(create_graph);
    auto x = (torch::randn({6, 3}, torch::kDouble) * 2 + 3).requires_grad_();
    auto dy = torch::randn({6, 3}, torch::kDouble);
    auto expected = pass_of(plain, x, dy, create_graph);
    auto found = pass_of(synced, x, dy, create_graph);
    REQUIRE(expected.size() == found.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      CHECK(distance(expected[i], found[i]) <= 1e-10);
    CHECK(distance(plain->running_mean, synced->running_mean) <= 1e-10);
    CHECK(distance(plain->running_var, synced->running_var) <= 1e-10);
    if (plain->num_batches_tracked.defined())
      CHECK(torch::equal(plain->num_batches_tracked,
                         synced->num_batches_tracked));
  }
};

TEST_CASE("a layer whose weight, bias or counter was taken away does without "
          "that one alone, as libtorch's") {
  auto weight = [](auto& layer) -> Tensor& { return layer.weight; };
  auto bias = [](auto& layer) -> Tensor& { return layer.bias; };
  auto counter = [](auto& layer) -> Tensor& {
    return layer.num_batches_tracked;
  };
  for (auto momentum : {optional_momentum{0.3}, optional_momentum{}}) {
    auto options = torch::nn::BatchNorm1dOptions(3).momentum(momentum);
    auto check_without = [&](auto... members) {
      twins both{options};
      (both.without(members), ...);
      both.check();
    };
    check_without(weight);
    check_without(bias);
    check_without(counter);
    check_without(weight, bias, counter);
  }
}

TEST_CASE("one of the running statistics without the other is refused in "
          "words, before anything is written") {
  SynchronizedBatchNorm1d layer{3};
  auto var = std::exchange(layer->running_var, Tensor{});
  auto x = torch::randn({4, 3});
  for (auto training : {true, false}) {
    layer->train(training);
    CHECK_THROWS_WITH_AS(
        layer->forward(x),
        "SynchronizedBatchNorm1d: running_var: expected a tensor beside "
        "running_mean, got none",
        error);
  }
  layer->running_var = var;
  layer->running_mean = Tensor{};
  CHECK_THROWS_WITH_AS(layer->forward(x),
                       doctest::Contains("running_mean: expected"), error);
  CHECK(layer->num_batches_tracked.item<std::int64_t>() == 0);
}

TEST_CASE("a counter that cannot count the batch is refused by its name, "
          "before anything is written") {
  SynchronizedBatchNorm1d layer{3};
  auto largest = std::numeric_limits<std::int64_t>::max();
  for (auto count : {std::int64_t{-3}, largest}) {
    layer->num_batches_tracked.fill_(count);
    auto text = "SynchronizedBatchNorm1d: num_batches_tracked: expected 0 to "
                "9223372036854775806, got "
                + std::to_string(count);
    CHECK_THROWS_WITH_AS(layer->forward(torch::randn({4, 3})), text.c_str(),
                         error);
    CHECK(layer->num_batches_tracked.item<std::int64_t>() == count);
    CHECK(torch::equal(layer->running_mean, torch::zeros({3})));
  }
}

/// Gradients of weight and bias are the caller's, to do with what can be done
/// to libtorch's.
template <class Run>
void check_own_memory(SynchronizedBatchNorm1d& layer, Run run) {
  auto x = torch::randn({6, 3}, torch::kDouble);
  auto dy = torch::randn({6, 3}, torch::kDouble);
  torch::nn::BatchNorm1d plain{3};
  plain->to(torch::kDouble);
  auto expected = torch::autograd::grad({plain->forward(x)},
                                        {plain->weight, plain->bias}, {dy});
  auto grads =
      torch::autograd::grad({run(x)}, {layer->weight, layer->bias}, {dy});
  for (std::size_t i = 0; i < grads.size(); ++i) {
    CHECK(distance(expected[i], grads[i]) <= 1e-10);
    CHECK(grads[i].storage().nbytes() == 3 * sizeof(double));
    CHECK_FALSE(grads[i].is_view());
    CHECK_NOTHROW(grads[i].add_(layer->weight, 0.1));
    CHECK_NOTHROW(grads[i].detach_());
    CHECK(distance(expected[i] + 0.1, grads[i]) <= 1e-10);
  }
}

TEST_CASE("gradients of weight and bias may be written to in place, and hold "
          "no memory but their own") {
  actors env;
  SynchronizedBatchNorm1d layer{3};
  layer->to(torch::kDouble);
  check_own_memory(layer, [&](const Tensor& x) { return layer->forward(x); });
  DataParallelWithCallback parallel{
      env.system, layer,
      DataParallelWithCallbackOptions{}.devices({torch::kCPU, torch::kCPU})};
  check_own_memory(layer,
                   [&](const Tensor& x) { return parallel->forward(x); });
}

/// Gradients of a float32 batch by input, weight and bias, and what they lead
/// to in turn, against those of libtorch's layer in float64.
template <class Run>
void check_digits(SynchronizedBatchNorm1d& layer, Run run, double mean) {
  CAPTURE(mean);
  auto at = torch::randn({512, 3}) + mean;
  auto dy = torch::randn({512, 3}, torch::kDouble);
  auto derive = [&](Tensor x, const Tensor& weight, auto forward) {
    x = x.detach().clone().requires_grad_();
    auto first = torch::autograd::grad({forward(x)}, {x, weight},
                                       {dy.to(x.scalar_type())}, true, true);
    auto along = first[0].pow(3).sum() + first[1].square().sum();
    first.push_back(torch::autograd::grad({along}, {x})[0]);
    return first;
  };
  torch::nn::BatchNorm1d plain{3};
  plain->to(torch::kDouble);
  auto expected = derive(at.to(torch::kDouble), plain->weight,
                         [&](const Tensor& x) { return plain->forward(x); });
  auto found = derive(at, layer->weight, run);
  // A few of float32's roundings, as of libtorch's layer around 0.
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(distance(expected[i], found[i]) <= 2e-6);
}

TEST_CASE("float32 gradients that can be derived again keep their digits "
          "whatever the mean of the batch") {
  actors env;
  SynchronizedBatchNorm1d layer{3};
  DataParallelWithCallback parallel{
      env.system, layer,
      DataParallelWithCallbackOptions{}.devices({torch::kCPU, torch::kCPU})};
  for (auto mean : {0.0, 1e2, 1e4, 1e5}) {
    check_digits(
        layer, [&](const Tensor& x) { return layer->forward(x); }, mean);
    check_digits(
        layer, [&](const Tensor& x) { return parallel->forward(x); }, mean);
  }
}

} // namespace

} // namespace syncnorm::nn::test
