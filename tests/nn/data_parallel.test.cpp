// Copies of a data-parallel graph: one backward call, compared with libtorch's
// BatchNorm on the whole batch.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"

namespace syncnorm::nn::test {

namespace {

using shape = std::vector<std::int64_t>;

DataParallelWithCallbackOptions on_cpus(std::size_t n) {
  return DataParallelWithCallbackOptions{}.devices(cpu_times(n));
}

/// A batch as a matrix of one row for each sample and spatial element.
Tensor rows(const Tensor& x) {
  return x.transpose(1, -1).reshape({-1, x.size(1)});
}

Tensor all_rows(const std::vector<Tensor>& parts) {
  std::vector<Tensor> result;
  for (const auto& part : parts)
    result.push_back(rows(part));
  return torch::cat(result);
}

std::vector<Tensor> grads_of(const std::vector<Tensor>& x) {
  std::vector<Tensor> result;
  for (const auto& part : x)
    result.push_back(part.grad());
  return result;
}

struct settings {
  torch::ScalarType type = torch::kDouble;
  bool channels_last = false;
  bool cumulative = false;
};

Tensor random_batch(const shape& sizes, const settings& with) {
  // A mean of 3 and a deviation of 2, so that neither is what it starts from.
  auto x = (torch::randn(sizes, torch::kDouble) * 2 + 3).to(with.type);
  if (with.channels_last)
    x = x.contiguous(sizes.size() == 4 ? at::MemoryFormat::ChannelsLast
                                       : at::MemoryFormat::ChannelsLast3d);
  return x.detach().requires_grad_();
}

torch::ScalarType parameter_type(torch::ScalarType type) {
  return type == torch::kDouble ? torch::kDouble : torch::kFloat;
}

/// One synchronized layer on copies, and libtorch's on the whole batch.
template <class Layer>
class both_sides {
public:
  both_sides(std::size_t copies, std::int64_t channels, const settings& with)
      : with_{with},
        layer_{options(channels, with)},
        plain_{torch::nn::BatchNorm1dOptions(channels).momentum(
            options(channels, with).momentum())},
        parallel_{env_.system, layer_, on_cpus(copies)} {
    layer_->to(parameter_type(with.type));
    plain_->to(parameter_type(with.type));
  }

  /// A training step with random input and cotangents; compares everything.
  void step(const std::vector<shape>& batches) {
    std::vector<Tensor> x;
    for (const auto& sizes : batches)
      x.push_back(random_batch(sizes, with_));
    auto whole =
        all_rows(x).detach().to(parameter_type(with_.type)).requires_grad_();
    auto y = parallel_->parallel_apply(x);
    auto expected = plain_->forward(whole);
    std::vector<Tensor> dy;
    for (const auto& part : y)
      dy.push_back(torch::randn_like(part));
    expected.backward(all_rows(dy).to(expected.scalar_type()));
    torch::autograd::backward(y, dy);
    compare(expected, y, whole.grad(), grads_of(x));
    sgd_.step();
    plain_sgd_.step();
    sgd_.zero_grad();
    plain_sgd_.zero_grad();
    CHECK(near(plain_->weight, layer_->weight));
    CHECK(near(plain_->bias, layer_->bias));
  }

private:
  static SynchronizedBatchNormOptions options(std::int64_t channels,
                                              const settings& with) {
    SynchronizedBatchNormOptions result{channels};
    return with.cumulative ? result.momentum(optional_momentum{}) : result;
  }

  [[nodiscard]] bool near(const Tensor& expected, const Tensor& got,
                          bool of_parameters = true) const {
    auto type = of_parameters ? parameter_type(with_.type) : with_.type;
    return distance(expected, got) <= tolerance(type);
  }

  void compare(const Tensor& y, const std::vector<Tensor>& got_y,
               const Tensor& dx, const std::vector<Tensor>& got_dx) {
    CHECK(near(y, all_rows(got_y), false));
    CHECK(near(dx, all_rows(got_dx), false));
    CHECK(near(plain_->weight.grad(), layer_->weight.grad()));
    CHECK(near(plain_->bias.grad(), layer_->bias.grad()));
    CHECK(near(plain_->running_mean, layer_->running_mean));
    CHECK(near(plain_->running_var, layer_->running_var));
    CHECK(near(plain_->num_batches_tracked, layer_->num_batches_tracked));
  }

  settings with_;
  actors env_;
  Layer layer_;
  torch::nn::BatchNorm1d plain_;
  DataParallelWithCallback parallel_;
  torch::optim::SGD sgd_{layer_->parameters(),
                         torch::optim::SGDOptions(0.1).momentum(0.9)};
  torch::optim::SGD plain_sgd_{plain_->parameters(),
                               torch::optim::SGDOptions(0.1).momentum(0.9)};
};

template <class Layer>
void check(const std::vector<shape>& batches, const settings& with = {},
           int steps = 3) {
  both_sides<Layer> sides{batches.size(), batches[0][1], with};
  for (int i = 0; i < steps; ++i)
    sides.step(batches);
}

/// The shape split over that many copies.
std::vector<shape> split(const shape& whole, std::int64_t copies) {
  std::vector<shape> result(static_cast<std::size_t>(copies), whole);
  for (auto& part : result)
    part[0] = whole[0] / copies;
  return result;
}

template <class Layer>
void check_types(const std::vector<shape>& batches) {
  for (auto type :
       {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16}) {
    CAPTURE(type);
    check<Layer>(batches, {type});
  }
}

TEST_CASE("four CPU copies with one backward call finish and equal one device, "
          "in all dtypes") {
  check_types<SynchronizedBatchNorm1d>(split({16, 10}, 4));
  check_types<SynchronizedBatchNorm2d>(split({16, 10, 16, 16}, 4));
  check_types<SynchronizedBatchNorm3d>(split({24, 5, 6, 4, 4}, 4));
}

TEST_CASE("any number of copies from 2 to 8 equals one device") {
  for (std::int64_t n = 2; n <= 8; ++n) {
    CAPTURE(n);
    check<SynchronizedBatchNorm2d>(split({2 * n, 2, 4, 4}, n));
    check<SynchronizedBatchNorm3d>(split({2 * n, 2, 4, 4, 4}, n));
    check<SynchronizedBatchNorm1d>(split({n, 3}, n));
  }
  check<SynchronizedBatchNorm1d>(split({8, 4}, 2));
  check<SynchronizedBatchNorm1d>(split({8, 4}, 8));
  check<SynchronizedBatchNorm1d>(split({12, 4, 7}, 3));
  check<SynchronizedBatchNorm2d>(split({32, 10, 40, 40}, 4));
  check<SynchronizedBatchNorm2d>(split({32, 10, 40, 40}, 2), {torch::kFloat});
}

TEST_CASE("channels-last input equals one device and gives channels-last "
          "output") {
  check_types<SynchronizedBatchNorm2d>(split({16, 10, 16, 16}, 4));
  for (auto type :
       {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16}) {
    check<SynchronizedBatchNorm2d>(split({8, 6, 5, 3}, 4), {type, true});
    check<SynchronizedBatchNorm3d>(split({8, 6, 5, 3, 2}, 2), {type, true});
  }
  SynchronizedBatchNorm2d layer{6};
  auto x = random_batch({2, 6, 5, 3}, {torch::kFloat, true});
  CHECK(layer->forward(x).is_contiguous(at::MemoryFormat::ChannelsLast));
  SynchronizedBatchNorm3d deep{6};
  auto z = random_batch({2, 6, 5, 3, 2}, {torch::kFloat, true});
  CHECK(deep->forward(z).is_contiguous(at::MemoryFormat::ChannelsLast3d));
}

TEST_CASE("copies with unequal batches, unequal spatial sizes or an empty "
          "batch equal one device") {
  check<SynchronizedBatchNorm2d>(
      {{2, 5, 4, 4}, {3, 5, 4, 4}, {4, 5, 4, 4}, {5, 5, 4, 4}});
  check<SynchronizedBatchNorm2d>(
      {{2, 5, 4, 4}, {3, 5, 8, 2}, {1, 5, 1, 1}, {2, 5, 3, 7}});
  check<SynchronizedBatchNorm2d>({{2, 5, 4, 4}, {0, 5, 4, 4}, {3, 5, 4, 4}});
  check<SynchronizedBatchNorm1d>({{0, 5}, {3, 5}, {4, 5}, {0, 5}});
}

TEST_CASE("the cumulative average follows one device") {
  check<SynchronizedBatchNorm2d>(split({8, 3, 4, 4}, 4),
                                 {torch::kDouble, false, true}, 5);
}

TEST_CASE("a round of empty batches only changes no running statistics and "
          "gives empty gradients") {
  actors env;
  SynchronizedBatchNorm2d layer{3};
  DataParallelWithCallback parallel{env.system, layer, on_cpus(3)};
  std::vector<Tensor> x;
  for (int r = 0; r < 3; ++r)
    x.push_back(torch::empty({0, 3, 4, 4}).requires_grad_());
  auto y = parallel->parallel_apply(x);
  torch::autograd::backward(y, {torch::ones_like(y[0]), torch::ones_like(y[1]),
                                torch::ones_like(y[2])});
  CHECK(y[2].sizes() == x[2].sizes());
  CHECK(x[1].grad().sizes() == x[1].sizes());
  CHECK(torch::equal(layer->running_mean, torch::zeros({3})));
  CHECK(torch::equal(layer->running_var, torch::ones({3})));
  CHECK(layer->num_batches_tracked.item<std::int64_t>() == 0);
  CHECK(torch::equal(layer->weight.grad(), torch::zeros({3})));
}

TEST_CASE("groups of two among four copies share statistics with each other "
          "only") {
  actors env;
  SynchronizedBatchNorm2d layer{5};
  layer->to(torch::kDouble);
  SynchronizeOptions groups;
  groups.group_size = 2;
  DataParallelWithCallback parallel{env.system, layer,
                                    on_cpus(4).synchronize(groups)};
  auto x = random_batch({8, 5, 4, 4}, {});
  auto dy = torch::randn_like(x);
  auto y = parallel->forward(x);
  y.backward(dy);
  auto halves = x.detach().chunk(2);
  for (std::int64_t g = 0; g < 2; ++g) {
    torch::nn::BatchNorm2d plain{5};
    plain->to(torch::kDouble);
    auto part = halves[static_cast<std::size_t>(g)].clone().requires_grad_();
    auto expected = plain->forward(part);
    expected.backward(dy.narrow(0, 4 * g, 4));
    CHECK(distance(expected, y.narrow(0, 4 * g, 4)) <= 1e-10);
    CHECK(distance(part.grad(), x.grad().narrow(0, 4 * g, 4)) <= 1e-10);
    if (g == 0)
      CHECK(distance(plain->running_var, layer->running_var) <= 1e-10);
  }
}

TEST_CASE("the last group has what is left") {
  actors env;
  SynchronizedBatchNorm1d layer{3};
  auto options = on_patient_cpus(3);
  options.synchronize().group_size = 2;
  DataParallelWithCallback parallel{env.system, layer, options};
  std::vector<Tensor> x;
  for (int r = 0; r < 3; ++r)
    x.push_back(torch::randn({4, 3}));
  auto y = parallel->parallel_apply(x);
  auto plain = [](const Tensor& of) {
    torch::nn::BatchNorm1d whole{3};
    return whole->forward(of);
  };
  CHECK(distance(plain(torch::cat({x[0], x[1]})), torch::cat({y[0], y[1]}))
        <= 1e-4);
  CHECK(distance(plain(x[2]), y[2]) <= 1e-4);
}

TEST_CASE("devices and the layers' synchronization may be changed between "
          "passes") {
  actors env;
  SynchronizedBatchNorm1d layer{3};
  layer->to(torch::kDouble);
  DataParallelWithCallback parallel{env.system, layer, on_cpus(4)};
  auto x = random_batch({8, 3}, {}).detach();
  auto plain = [](const Tensor& part) {
    torch::nn::BatchNorm1d one{3};
    one->to(torch::kDouble);
    return one->forward(part);
  };
  auto in_halves =
      torch::cat({plain(x.narrow(0, 0, 4)), plain(x.narrow(0, 4, 4))});
  CHECK(distance(plain(x), parallel->forward(x)) <= 1e-10);
  SynchronizeOptions groups;
  groups.group_size = 2;
  parallel->options.synchronize(groups);
  CHECK(distance(in_halves, parallel->forward(x)) <= 1e-10);
  parallel->options.synchronize({});
  CHECK(distance(plain(x), parallel->forward(x)) <= 1e-10);
  parallel->options.devices(cpu_times(2));
  CHECK(distance(plain(x), parallel->forward(x)) <= 1e-10);
  CHECK(parallel->copies().size() == 2);
  parallel->options.devices({});
  CHECK(distance(plain(x), parallel->forward(x).cpu()) <= 1e-10);
  parallel->options.devices({torch::Device{torch::kCUDA, 99}});
  CHECK_THROWS_AS(parallel->forward(x), error);
}

torch::nn::Sequential make_net(bool synchronized) {
  torch::nn::Sequential net;
  net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3)));
  if (synchronized)
    net->push_back(SynchronizedBatchNorm2d(4));
  else
    net->push_back(torch::nn::BatchNorm2d(4));
  net->push_back(torch::nn::ReLU());
  net->push_back(torch::nn::Flatten());
  net->push_back(torch::nn::Linear(4 * 6 * 6, 3));
  net->to(torch::kDouble);
  return net;
}

TEST_CASE("a net of convolution and norm trained for 100 steps on four copies "
          "equals one device") {
  actors env;
  auto net = make_net(true);
  auto plain = make_net(false);
  {
    torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      plain->parameters()[i].copy_(net->parameters()[i]);
  }
  DataParallelWithCallback parallel{env.system, net, on_cpus(4)};
  torch::optim::SGD sgd{net->parameters(), 0.05};
  torch::optim::SGD plain_sgd{plain->parameters(), 0.05};
  auto first = net->parameters()[0].detach().clone();
  for (int i = 0; i < 100; ++i) {
    auto x = torch::randn({10, 1, 8, 8}, torch::kDouble);
    auto target = torch::randint(3, {10});
    sgd.zero_grad();
    plain_sgd.zero_grad();
    torch::nn::functional::cross_entropy(parallel->forward(x), target)
        .backward();
    torch::nn::functional::cross_entropy(plain->forward(x), target).backward();
    sgd.step();
    plain_sgd.step();
  }
  CHECK(distance(first, net->parameters()[0]) > 1e-3);
  for (std::size_t i = 0; i < net->parameters().size(); ++i)
    CHECK(distance(plain->parameters()[i], net->parameters()[i]) <= 1e-10);
  for (std::size_t i = 0; i < net->buffers().size(); ++i)
    CHECK(distance(plain->buffers()[i], net->buffers()[i]) <= 1e-10);
}

/// Gradients of a nonlinear loss on the copies' outputs.
std::vector<Tensor> loss_gradients(DataParallelWithCallback& parallel,
                                   const std::vector<Tensor>& inputs,
                                   std::vector<Tensor> wanted,
                                   bool create_graph) {
  auto y = parallel->parallel_apply(inputs);
  auto loss = torch::zeros({}, torch::kDouble);
  for (std::size_t r = 0; r < y.size(); ++r)
    loss = loss + (y[r].sin() * static_cast<double>(r + 1)).sum();
  return torch::autograd::grad({loss}, wanted, {}, create_graph, create_graph);
}

void check_second_derivatives(eps_mode mode) {
  actors env;
  SynchronizedBatchNorm1d layer{
      SynchronizedBatchNorm1dOptions(3).eps_mode(mode).eps(0.3)};
  layer->to(torch::kDouble);
  DataParallelWithCallback parallel{env.system, layer, on_cpus(3)};
  std::vector<Tensor> at;
  for (int n : {2, 3, 1})
    at.push_back(torch::randn({n, 3}, torch::kDouble).requires_grad_());
  {
    // One channel under epsilon, so that clamping happens.
    torch::NoGradGuard no_grad;
    for (auto& x : at)
      x.select(1, 2) *= 0.1;
    layer->weight.uniform_(0.5, 1.5);
  }
  auto wanted = at;
  wanted.push_back(layer->weight);
  wanted.push_back(layer->bias);
  std::vector<Tensor> direction;
  for (const auto& x : wanted)
    direction.push_back(torch::randn_like(x));
  auto first = loss_gradients(parallel, at, wanted, true);
  auto along = torch::zeros({}, torch::kDouble);
  for (std::size_t i = 0; i < first.size(); ++i)
    along = along + (first[i] * direction[i]).sum();
  auto second = torch::autograd::grad({along}, wanted);
  // Central differences of the first derivatives that the kernels compute.
  auto shifted = [&](double h) {
    torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      wanted[i] += direction[i] * h;
    torch::AutoGradMode with_grad{true};
    auto result = loss_gradients(parallel, at, wanted, false);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      wanted[i].detach() -= direction[i] * h;
    return result;
  };
  // Error of the difference: about h^2 plus 1e-16 / h, so 1e-9; relative to
  // values of 1 to 100.
  auto h = 1e-5;
  auto ahead = shifted(h);
  auto behind = shifted(-h);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    CHECK(distance((ahead[i] - behind[i]) / (2 * h), second[i]) <= 1e-6);
}

TEST_CASE("second derivatives of a data-parallel graph equal finite "
          "differences of the first") {
  check_second_derivatives(eps_mode::plus);
  check_second_derivatives(eps_mode::clamp);
}

TEST_CASE("forward and backward give the same bits whichever copy comes "
          "first") {
  actors env;
  SynchronizedBatchNorm2d layer{7};
  DataParallelWithCallback parallel{env.system, layer, on_cpus(4)};
  auto x = torch::randn({12, 7, 5, 5}) * 3 + 100;
  auto dy = torch::randn_like(x);
  Tensor y;
  Tensor dx;
  for (int i = 0; i < 30; ++i) {
    auto leaf = x.clone().requires_grad_();
    auto out = parallel->forward(leaf);
    out.backward(dy);
    if (i > 0) {
      REQUIRE(torch::equal(out, y));
      REQUIRE(torch::equal(leaf.grad(), dx));
    }
    y = out.detach();
    dx = leaf.grad();
  }
}

TEST_CASE("one copy, and evaluation, send no message") {
  actors env;
  SynchronizedBatchNorm2d layer{3};
  auto running = env.system.registry().running();
  DataParallelWithCallback one{env.system, layer, on_cpus(1)};
  auto x = torch::randn({4, 3, 5, 5}).requires_grad_();
  one->forward(x).sum().backward();
  auto sent = [](DataParallelWithCallback& parallel) {
    std::uint64_t result = 0;
    for (const auto& copy : parallel->copies())
      result += copy->as<SynchronizedBatchNorm2d>()->messages_sent();
    return result;
  };
  CHECK(sent(one) == 0);
  CHECK(env.system.registry().running() == running);
  DataParallelWithCallback four{env.system, layer, on_cpus(4)};
  four->eval();
  four->forward(x).sum().backward();
  CHECK(sent(four) == 0);
  four->train();
  four->forward(x).sum().backward();
  // Forward only: the backward pass of a joint graph needs none.
  CHECK(sent(four) == 4);
}

TEST_CASE("input is split and joined along the dimension of the options, on no "
          "more copies than it has parts") {
  actors env;
  SynchronizedBatchNorm1d layer{3};
  layer->to(torch::kDouble);
  // Two groups of two show which part of the input each copy has.
  SynchronizeOptions groups;
  groups.group_size = 2;
  auto along_two = on_cpus(4).dim(2).output_device(torch::kCPU);
  DataParallelWithCallback parallel{env.system, layer,
                                    along_two.synchronize(groups)};
  auto x = random_batch({5, 3, 8}, {});
  auto dy = torch::randn_like(x);
  auto y = parallel->forward(x);
  y.backward(dy);
  for (std::int64_t at : {0, 4}) {
    torch::nn::BatchNorm1d plain{3};
    plain->to(torch::kDouble);
    auto part = x.detach().narrow(2, at, 4).clone().requires_grad_();
    auto expected = plain->forward(part);
    expected.backward(dy.narrow(2, at, 4));
    CHECK(distance(expected, y.narrow(2, at, 4)) <= 1e-10);
    CHECK(distance(part.grad(), x.grad().narrow(2, at, 4)) <= 1e-10);
  }
  // Two parts: the first group alone.
  torch::nn::BatchNorm1d plain{3};
  plain->to(torch::kDouble);
  auto thin = random_batch({5, 3, 2}, {});
  CHECK(distance(plain->forward(thin), parallel->forward(thin)) <= 1e-10);
}

TEST_CASE("a batch without samples is one copy's, and its output has none") {
  actors env;
  DataParallelWithCallback parallel{env.system, SynchronizedBatchNorm2d{3},
                                    on_cpus(2)};
  auto y = parallel->forward(torch::zeros({0, 3, 2, 2}));
  CHECK(y.sizes() == at::IntArrayRef({0, 3, 2, 2}));
  CHECK(parallel->copies().size() == 1);
}

TEST_CASE(
    "devices that are taken away between passes are those of the default, "
    "however the next pass begins") {
  actors env;
  for (auto with_inputs : {true, false}) {
    DataParallelWithCallback parallel{
        env.system, torch::nn::Identity{}.ptr(),
        [](torch::nn::Module&, const Tensor& x) { return x; }, on_cpus(2)};
    parallel->options.devices({});
    if (with_inputs)
      CHECK(parallel->parallel_apply({torch::zeros({1})}).size() == 1);
    else
      CHECK_NOTHROW(parallel->parallel_apply(1, [](auto&, auto) {}));
    CHECK(parallel->copies().size() == 1);
  }
}

TEST_CASE("copies on a CPU with an index are the model's") {
  actors env;
  SynchronizedBatchNorm2d layer{3};
  torch::nn::BatchNorm2d plain{3};
  const torch::Device first{torch::kCPU, 0};
  DataParallelWithCallback parallel{
      env.system, layer,
      DataParallelWithCallbackOptions{}.devices({first, first})};
  auto x = torch::randn({4, 3, 2, 2});
  CHECK(distance(plain->forward(x), parallel->forward(x)) <= 1e-4);
  CHECK(distance(plain->running_var, layer->running_var) <= 1e-4);
}

TEST_CASE("evaluation on copies equals libtorch's, and its gradients") {
  actors env;
  SynchronizedBatchNorm2d layer{3};
  torch::nn::BatchNorm2d plain{3};
  for (auto* m :
       std::initializer_list<torch::nn::Module*>{layer.get(), plain.get()}) {
    m->named_buffers()["running_mean"].fill_(0.5);
    m->named_buffers()["running_var"].fill_(4);
    m->to(torch::kDouble);
    m->eval();
  }
  DataParallelWithCallback parallel{env.system, layer, on_cpus(4)};
  parallel->eval();
  auto x = torch::randn({8, 3, 2, 2}, torch::kDouble).requires_grad_();
  auto z = x.detach().clone().requires_grad_();
  auto dy = torch::randn_like(x);
  auto y = parallel->forward(x);
  auto expected = plain->forward(z);
  y.backward(dy);
  expected.backward(dy);
  CHECK(distance(expected, y) <= 1e-10);
  CHECK(distance(z.grad(), x.grad()) <= 1e-10);
  CHECK(distance(plain->weight.grad(), layer->weight.grad()) <= 1e-10);
}

} // namespace

} // namespace syncnorm::nn::test
