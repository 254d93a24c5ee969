#pragma once

// The rules for copies on CUDA devices, as test cases for real ones and for
// emulated ones: the includer defines `std::vector<torch::Device> places()`,
// the devices that copies are spread over.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace syncnorm::nn::test {

namespace {

const torch::Device cpu{torch::kCPU};

/// The devices of n copies, in turn.
std::vector<torch::Device> on_devices(std::size_t n) {
  auto all = places();
  std::vector<torch::Device> result;
  for (std::size_t i = 0; i < n; ++i)
    result.push_back(all[i % all.size()]);
  return result;
}

/// Only devices, or CPUs among them: with a CPU or a device first.
std::vector<std::vector<torch::Device>> mixes() {
  auto gpu = on_devices(4);
  return {{gpu[0]},
          {gpu[0], gpu[1]},
          {gpu[0], gpu[1], gpu[2], gpu[3]},
          {gpu[0], gpu[0], gpu[0]},
          {cpu, gpu[0], gpu[1]},
          {gpu[1], cpu, gpu[0], cpu}};
}

Tensor random_batch(std::int64_t samples, torch::ScalarType type,
                    bool channels_last = false) {
  auto x = (torch::randn({samples, 5, 4, 3}, torch::kDouble) * 2 + 3).to(type);
  return channels_last ? x.contiguous(at::MemoryFormat::ChannelsLast) : x;
}

torch::ScalarType parameter_type(torch::ScalarType type) {
  return type == torch::kDouble ? torch::kDouble : torch::kFloat;
}

/// Layers for the whole batch on the CPU, and with the same start elsewhere.
struct reference {
  torch::nn::BatchNorm2d plain;
  torch::ScalarType type;

  reference(SynchronizedBatchNorm2d& layer, torch::ScalarType dtype)
      : plain{torch::nn::BatchNorm2dOptions(5).momentum(
          layer->options.momentum())},
        type{dtype} {
    layer->to(parameter_type(type));
    plain->to(parameter_type(type));
    torch::NoGradGuard no_grad;
    for (auto* values : {&plain->weight, &plain->bias})
      values->uniform_(0.5, 1.5);
    layer->weight.copy_(plain->weight);
    layer->bias.copy_(plain->bias);
  }

  [[nodiscard]] bool near(const Tensor& expected, const Tensor& got,
                          bool of_parameters = true) const {
    auto as = of_parameters ? parameter_type(type) : type;
    return distance(expected, got.to(cpu)) <= tolerance(as);
  }

  void check_state(const SynchronizedBatchNorm2dImpl& layer) const {
    CHECK(near(plain->running_mean, layer.running_mean));
    CHECK(near(plain->running_var, layer.running_var));
    CHECK(near(plain->num_batches_tracked, layer.num_batches_tracked));
  }
};

/// Copy r has r + 1 samples, the last one of three or more has none.
std::vector<Tensor> batches(std::size_t copies, torch::ScalarType type,
                            bool channels_last) {
  std::vector<Tensor> result;
  for (std::size_t r = 0; r < copies; ++r)
    result.push_back(random_batch(
        r > 1 && r + 1 == copies ? 0 : static_cast<std::int64_t>(r) + 1, type,
        channels_last));
  return result;
}

void check_joint(const std::vector<torch::Device>& where,
                 torch::ScalarType type, bool channels_last,
                 const torch::Device& home) {
  actors env;
  SynchronizedBatchNorm2d layer{5};
  reference truth{layer, type};
  layer->to(home);
  DataParallelWithCallback parallel{
      env.system, layer, DataParallelWithCallbackOptions{}.devices(where)};
  for (int step = 0; step < 2; ++step) {
    auto parts = batches(where.size(), type, channels_last);
    auto whole = torch::cat(parts)
                     .to(parameter_type(type))
                     .contiguous()
                     .requires_grad_();
    std::vector<Tensor> x, dy;
    for (std::size_t r = 0; r < where.size(); ++r)
      x.push_back(parts[r].to(where[r]).detach().requires_grad_());
    auto y = parallel->parallel_apply(x);
    std::vector<Tensor> host_y, host_dy, host_dx;
    for (std::size_t r = 0; r < where.size(); ++r) {
      CHECK(y[r].device() == where[r]);
      host_y.push_back(y[r].to(cpu));
      host_dy.push_back(torch::randn(y[r].sizes(), torch::kDouble).to(type));
      dy.push_back(host_dy[r].to(where[r]));
    }
    auto expected = truth.plain->forward(whole);
    truth.plain->zero_grad();
    layer->zero_grad();
    expected.backward(torch::cat(host_dy).to(expected.scalar_type()));
    torch::autograd::backward(y, dy);
    for (const auto& part : x) {
      CHECK(part.grad().device() == part.device());
      host_dx.push_back(part.grad().to(cpu));
    }
    CHECK(truth.near(expected, torch::cat(host_y), false));
    CHECK(truth.near(whole.grad(), torch::cat(host_dx), false));
    CHECK(truth.near(truth.plain->weight.grad(), layer->weight.grad()));
    CHECK(truth.near(truth.plain->bias.grad(), layer->bias.grad()));
    truth.check_state(*layer);
  }
}

/// Checks copies with graphs and threads of their own, and a second layer
/// behind the first, so that one's backward pass waits for the other's.
void check_apart(const std::vector<torch::Device>& where) {
  actors env;
  std::vector<torch::nn::Sequential> nets;
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  for (const auto& device : where) {
    nets.emplace_back(SynchronizedBatchNorm2d(5), torch::nn::ReLU(),
                      SynchronizedBatchNorm2d(5));
    nets.back()->to(torch::kDouble);
    nets.back()->to(device);
    modules.push_back(nets.back().ptr());
  }
  torch::nn::Sequential plain{torch::nn::BatchNorm2d(5), torch::nn::ReLU(),
                              torch::nn::BatchNorm2d(5)};
  plain->to(torch::kDouble);
  synchronize(env.system, modules);
  for (std::int64_t step = 1; step <= 2; ++step) {
    auto parts = batches(where.size(), torch::kDouble, false);
    auto whole = torch::cat(parts).requires_grad_();
    auto expected = plain->forward(whole);
    auto dy = torch::randn_like(expected);
    expected.backward(dy);
    std::vector<Tensor> y(where.size()), dx(where.size());
    std::int64_t first = 0;
    std::vector<Tensor> dys;
    for (const auto& part : parts) {
      dys.push_back(dy.narrow(0, first, part.size(0)));
      first += part.size(0);
    }
    rethrow_first(on_threads(where.size(), [&](std::size_t r) {
      auto x = parts[r].to(where[r]).detach().requires_grad_();
      auto out = nets[r]->forward(x);
      out.backward(dys[r].to(where[r]));
      y[r] = out.to(cpu);
      dx[r] = x.grad().to(cpu);
    }));
    CHECK(distance(expected, torch::cat(y)) <= 1e-10);
    CHECK(distance(whole.grad(), torch::cat(dx)) <= 1e-10);
    auto truth = plain->named_buffers();
    for (const auto& net : nets)
      for (const auto& entry : net->named_buffers())
        CHECK(distance(truth[entry.key()], entry.value().to(cpu)) <= 1e-10);
    for (std::size_t i = 0; i < plain->parameters().size(); ++i) {
      Tensor sum;
      for (const auto& net : nets) {
        auto grad = net->parameters()[i].grad().to(cpu);
        sum = sum.defined() ? sum + grad : grad;
      }
      CHECK(distance(plain->parameters()[i].grad(), sum) <= 1e-10);
    }
  }
}

/// What one of several copies does on its device with its part of the batch,
/// which is a leaf on the CPU; returns gradients.
using own_pass = std::function<std::vector<Tensor>(
    SynchronizedBatchNorm2d&, const Tensor& leaf, const torch::Device&)>;

/// Gradients on the CPU of copies with graphs and threads of their own, and
/// what each copy has thrown.
std::vector<Tensor> gradients_of(const std::vector<torch::Device>& where,
                                 std::vector<std::string>& texts,
                                 const own_pass& pass) {
  actors env;
  std::vector<SynchronizedBatchNorm2d> layers;
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  for (const auto& device : where) {
    layers.emplace_back(5);
    layers.back()->to(torch::kDouble);
    layers.back()->to(device);
    modules.push_back(layers.back().ptr());
  }
  synchronize(env.system, modules);
  std::vector<Tensor> x;
  for (std::size_t r = 0; r < where.size(); ++r)
    x.push_back(random_batch(2, torch::kDouble).requires_grad_());
  std::vector<std::vector<Tensor>> found(where.size());
  auto thrown = on_threads(where.size(), [&](std::size_t r) {
    found[r] = pass(layers[r], x[r], where[r]);
  });
  for (const auto& failure : thrown)
    texts.push_back(text_of(failure));
  std::vector<Tensor> result;
  for (const auto& some : found)
    for (const auto& gradient : some)
      result.push_back(gradient.to(cpu));
  return result;
}

/// Gradients of the weights alone.
std::vector<Tensor> weight_gradients(const std::vector<torch::Device>& where,
                                     std::vector<std::string>& texts) {
  return gradients_of(
      where, texts, [](auto& layer, const auto& leaf, const auto& device) {
        auto y = layer->forward(leaf.to(device)).to(cpu);
        return torch::autograd::grad({y.sin().sum()}, {layer->weight});
      });
}

std::vector<Tensor> second_derivatives(const std::vector<torch::Device>& where,
                                       std::vector<std::string>& texts) {
  return gradients_of(
      where, texts, [](auto& layer, const auto& leaf, const auto& device) {
        auto y = layer->forward(leaf.to(device)).to(cpu);
        std::vector<Tensor> wanted{leaf, layer->weight};
        auto first =
            torch::autograd::grad({y.sin().sum()}, wanted, {}, true, true);
        return torch::autograd::grad(
            {first[0].square().sum() + first[1].to(cpu).square().sum()},
            wanted);
      });
}

} // namespace

TEST_CASE("copies of a data-parallel graph on devices, CPUs among them, equal "
          "one device on the whole batch") {
  for (const auto& where : mixes())
    check_joint(where, torch::kDouble, false, where[0]);
  auto gpu = on_devices(2);
  for (auto type : {torch::kFloat, torch::kHalf, torch::kBFloat16}) {
    check_joint({gpu[0], gpu[1]}, type, false, gpu[0]);
    check_joint({cpu, gpu[0], gpu[1]}, type, false, cpu);
  }
  check_joint({gpu[0], gpu[1]}, torch::kFloat, true, gpu[1]);
  // The model is where no copy is, or only a later one.
  check_joint({gpu[0], gpu[1]}, torch::kDouble, false, cpu);
  check_joint({cpu, gpu[0]}, torch::kDouble, true, gpu[0]);
}

TEST_CASE("copies with graphs and threads of their own on devices, also on one "
          "device, finish and equal one device") {
  for (const auto& where : mixes())
    check_apart(where);
}

TEST_CASE("one copy on a device, and evaluation, send no message and equal "
          "libtorch's layer") {
  actors env;
  auto gpu = on_devices(1)[0];
  SynchronizedBatchNorm2d layer{
      SynchronizedBatchNorm2dOptions(5).momentum(optional_momentum{}).eps(0.1)};
  reference truth{layer, torch::kDouble};
  truth.plain->options.eps(0.1);
  layer->to(gpu);
  auto step = [&] {
    auto x = random_batch(4, torch::kDouble).requires_grad_();
    auto z = x.detach().to(gpu).requires_grad_();
    auto expected = truth.plain->forward(x);
    auto y = layer->forward(z);
    auto dy = torch::randn_like(expected);
    expected.backward(dy);
    y.backward(dy.to(gpu));
    CHECK(truth.near(expected, y));
    CHECK(truth.near(x.grad(), z.grad()));
    CHECK(truth.near(truth.plain->weight.grad(), layer->weight.grad()));
    truth.check_state(*layer);
  };
  step();
  step();
  // Other code changes the counter: in place, and by another tensor.
  for (const auto& counter :
       {truth.plain->num_batches_tracked, layer->num_batches_tracked})
    counter.fill_(7);
  step();
  for (auto* counter :
       {&truth.plain->num_batches_tracked, &layer->num_batches_tracked})
    counter->set_data(torch::tensor(std::int64_t{3}).to(counter->device()));
  step();
  layer->eval();
  truth.plain->eval();
  step();
  CHECK(layer->messages_sent() == 0);
}

TEST_CASE("a counter that was written through the model counts in its copies "
          "on devices") {
  actors env;
  auto gpu = on_devices(2);
  SynchronizedBatchNorm2d layer{5};
  layer->to(gpu[0]);
  DataParallelWithCallback parallel{
      env.system, layer, DataParallelWithCallbackOptions{}.devices(gpu)};
  auto batch = random_batch(4, torch::kFloat);
  parallel->forward(batch);
  parallel->forward(batch);
  CHECK(layer->num_batches_tracked.item<std::int64_t>() == 2);
  layer->num_batches_tracked.fill_(10);
  parallel->forward(batch);
  CHECK(layer->num_batches_tracked.item<std::int64_t>() == 11);
}

TEST_CASE("clamped variances and second derivatives on devices equal those of "
          "the CPU") {
  auto gpu = on_devices(2);
  auto run = [&](const std::vector<torch::Device>& where) {
    actors env;
    SynchronizedBatchNorm2d layer{
        SynchronizedBatchNorm2dOptions(5).eps_mode(eps_mode::clamp).eps(4.5)};
    layer->to(torch::kDouble);
    layer->to(where[0]);
    DataParallelWithCallback parallel{
        env.system, layer, DataParallelWithCallbackOptions{}.devices(where)};
    auto x = random_batch(6, torch::kDouble).requires_grad_();
    auto y = parallel->forward(x.to(where[0])).to(cpu);
    auto first = torch::autograd::grad({y.sin().sum()}, {x}, {}, true, true)[0];
    auto second =
        torch::autograd::grad({first.square().sum()}, {x, layer->weight});
    auto plain = torch::autograd::grad(
        {parallel->forward(x.to(where[0])).to(cpu).sin().sum()}, {x})[0];
    CHECK(distance(first, plain) <= 1e-10);
    return std::vector<Tensor>{first.detach(), second[0], second[1].to(cpu)};
  };
  auto expected = run({cpu, cpu});
  for (const auto& where : std::vector<std::vector<torch::Device>>{
           {gpu[0], gpu[1]}, {gpu[0], cpu}}) {
    auto found = run(where);
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(distance(expected[i], found[i]) <= 1e-10);
  }
}

TEST_CASE("second derivatives of copies with graphs of their own equal those "
          "on the CPU if each has a device, and are refused at once if two "
          "share one") {
  auto gpu = on_devices(2);
  std::vector<std::string> texts;
  auto expected = second_derivatives({cpu, cpu}, texts);
  if (gpu[0] != gpu[1]) {
    auto found = second_derivatives(gpu, texts);
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(distance(expected[i], found[i]) <= 1e-10);
  }
  for (const auto& text : texts)
    CHECK(text.empty());
  texts.clear();
  second_derivatives({gpu[0], gpu[1], gpu[0]}, texts);
  for (const auto& text : texts)
    CHECK_MESSAGE(text.find("second derivatives: expected a CUDA device for "
                            "each copy with a graph of its own, got copies 0 "
                            "and ")
                      != std::string::npos,
                  text);
}

TEST_CASE(
    "gradients of the weights alone, of copies with graphs of their own, "
    "equal those on the CPU if each has a device, and are refused at once "
    "if two share one") {
  auto gpu = on_devices(2);
  std::vector<std::string> texts;
  auto expected = weight_gradients({cpu, cpu}, texts);
  if (gpu[0] != gpu[1]) {
    auto found = weight_gradients(gpu, texts);
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(distance(expected[i], found[i]) <= 1e-10);
  }
  for (const auto& text : texts)
    CHECK(text.empty());
  texts.clear();
  weight_gradients({gpu[0], gpu[1], gpu[0]}, texts);
  for (const auto& text : texts)
    CHECK_MESSAGE(text.find("SynchronizedBatchNorm2d: backward without the "
                            "gradient of the input: "
                            "expected a CUDA device for each copy with a graph "
                            "of its own, got copies 0 and ")
                      != std::string::npos,
                  text);
}

TEST_CASE("weights that were written to since the forward pass are noticed in "
          "its backward pass, wherever the copies and the model are") {
  actors env;
  SynchronizedBatchNorm2d layer{5};
  for (const auto& where :
       {std::vector<torch::Device>{cpu, on_devices(1)[0]}, on_devices(2)}) {
    DataParallelWithCallback parallel{
        env.system, layer, DataParallelWithCallbackOptions{}.devices(where)};
    auto y = parallel->forward(random_batch(4, torch::kFloat).requires_grad_());
    {
      torch::NoGradGuard no_grad;
      layer->weight.mul_(3);
    }
    parallel->forward(random_batch(4, torch::kFloat));
    CHECK_THROWS_WITH_AS(y.backward(torch::randn_like(y)),
                         doctest::Contains("modified by an inplace operation"),
                         c10::Error);
  }
}

TEST_CASE("copies on a device that were made under InferenceMode learn "
          "statistics outside of it, also with a weight that was made there") {
  actors env;
  SynchronizedBatchNorm2d layer{5};
  {
    c10::InferenceMode inference;
    layer->weight.set_requires_grad(false);
    layer->weight.set_data(torch::full({5}, 2, torch::kFloat));
  }
  SynchronizedBatchNorm2d plain{
      std::dynamic_pointer_cast<SynchronizedBatchNorm2dImpl>(layer->clone())};
  DataParallelWithCallback parallel{
      env.system, layer,
      DataParallelWithCallbackOptions{}.devices({cpu, on_devices(1)[0]})};
  {
    c10::InferenceMode inference;
    parallel->eval();
    parallel->forward(random_batch(4, torch::kFloat));
    parallel->train();
  }
  torch::NoGradGuard no_grad;
  for (int pass = 0; pass < 2; ++pass) {
    auto x = random_batch(4, torch::kFloat);
    CHECK(distance(plain->forward(x), parallel->forward(x).to(cpu)) <= 1e-5);
  }
}

TEST_CASE("a layer that was made under InferenceMode trains its statistics on "
          "a device as on a CPU") {
  c10::InferenceMode inference;
  SynchronizedBatchNorm2d layer{5};
  SynchronizedBatchNorm2d on_cpu{5};
  auto gpu = on_devices(1)[0];
  layer->to(gpu);
  for (int pass = 1; pass <= 2; ++pass) {
    auto x = random_batch(4, torch::kFloat);
    layer->forward(x.to(gpu));
    on_cpu->forward(x);
    CHECK(layer->num_batches_tracked.to(cpu).item<std::int64_t>() == pass);
    CHECK(distance(on_cpu->running_mean, layer->running_mean.to(cpu)) <= 1e-5);
  }
}

TEST_CASE("a device that is not there is refused in words, and layers work "
          "again after an error on devices") {
  actors env;
  auto gpu = on_devices(2);
  auto none = torch::Device{torch::kCUDA, 77};
  try {
    DataParallelWithCallback parallel{
        env.system, SynchronizedBatchNorm2d(5),
        DataParallelWithCallbackOptions{}.devices({gpu[0], none})};
    FAIL("a device that is not there was taken");
  } catch (const error& x) {
    CHECK(x.code() == errc::device_unavailable);
    CHECK(std::string{x.what()}.find("CUDA devices, got cuda:77")
          != std::string::npos);
  }
  SynchronizedBatchNorm2d layer{5};
  layer->to(gpu[0]);
  DataParallelWithCallback parallel{
      env.system, layer, DataParallelWithCallbackOptions{}.devices(gpu)};
  auto good = random_batch(4, torch::kFloat);
  parallel->forward(good);
  CHECK_THROWS_AS(parallel->parallel_apply(
                      {good.to(gpu[0]), torch::zeros({2, 7, 3, 3}).to(gpu[1])}),
                  error);
  // A tensor that is not where its copy's parameters are.
  CHECK_THROWS_AS(parallel->parallel_apply({good.to(gpu[0]), good}), error);
  auto y = parallel->forward(good).to(cpu);
  CHECK(y.transpose(0, 1).flatten(1).mean(1).abs().max().item<double>() < 1e-5);
}

} // namespace syncnorm::nn::test
