// What happens between a forward pass and its backward pass: other passes of
// the same copies, and changes to the model.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"
#include "syncnorm/nn/replica_set.hpp"

#include <cmath>

namespace syncnorm::nn::test {

namespace {

/// Scales its input by a buffer that it sets in training, and that its graph
/// saves.
struct ScaledImpl : torch::nn::Cloneable<ScaledImpl> {
  ScaledImpl() {
    reset();
  }

  void reset() override {
    scale = register_buffer("scale", torch::ones({3}, torch::kDouble));
    norm = register_module("norm", SynchronizedBatchNorm1d(3));
    norm->to(torch::kDouble);
  }

  Tensor forward(const Tensor& x) {
    if (is_training())
      scale.copy_(x.detach().abs().mean(0));
    return norm(x * scale);
  }

  Tensor scale;
  SynchronizedBatchNorm1d norm{nullptr};
};
TORCH_MODULE(Scaled);

/// dx of a training pass, with what `between` does before the backward pass.
template <class Model, class F>
Tensor gradient(Model& model, const Tensor& batch, const Tensor& dy,
                const F& between) {
  auto x = batch.clone().requires_grad_();
  auto y = model->forward(x);
  between();
  y.backward(dy);
  return x.grad();
}

Tensor random(std::int64_t samples) {
  return torch::randn({samples, 3}, torch::kDouble) * 2 + 1;
}

void evaluate(DataParallelWithCallback& model) {
  torch::NoGradGuard no_grad;
  model->eval();
  model->forward(random(6));
  model->train();
}

TEST_CASE("a pass in evaluation changes no buffer that the graph of a pass "
          "before it has saved, on any copy") {
  actors env;
  for (std::size_t copies : {1, 2, 3}) {
    Scaled net;
    DataParallelWithCallback model{env.system, net, on_patient_cpus(copies)};
    auto x = random(7);
    auto dy = torch::randn_like(x);
    auto expected = gradient(model, x, dy, [] {});
    auto got = gradient(model, x, dy, [&] { evaluate(model); });
    CHECK(distance(expected, got) <= 1e-12);
    // And the copies still are of the model.
    model->eval();
    auto held_out = random(5);
    CHECK(distance(net->forward(held_out), model->forward(held_out)) <= 1e-12);
  }
}

TEST_CASE(
    "a pass in training changes no statistics that the graph of a pass in "
    "evaluation before it has saved") {
  SynchronizedBatchNorm1d layer{3};
  layer->to(torch::kDouble);
  layer->eval();
  auto x = random(5);
  auto dy = torch::randn_like(x);
  gradient(layer, x, dy, [&] {
    layer->train();
    layer->forward(random(6));
  });
  // Mean 0 and variance 1, as a layer begins.
  auto expected = (dy * x).sum(0) / std::sqrt(1 + 1e-5);
  CHECK(distance(expected, layer->weight.grad()) <= 1e-12);
}

TEST_CASE("averages of weights that are swapped in for a pass in evaluation do "
          "not change the gradients of the pass before it") {
  actors env;
  SynchronizedBatchNorm1d layer{3};
  layer->to(torch::kDouble);
  DataParallelWithCallback model{env.system, layer, on_patient_cpus(2)};
  auto x = random(6);
  auto dy = torch::randn_like(x);
  auto expected = gradient(model, x, dy, [] {});
  auto own = layer->weight.detach();
  auto average = torch::full_like(own, 3);
  auto held_out = random(4);
  Tensor y;
  auto got = gradient(model, x, dy, [&] {
    layer->weight.set_data(average);
    torch::NoGradGuard no_grad;
    model->eval();
    y = model->forward(held_out);
    CHECK(distance(layer->forward(held_out), y) <= 1e-12);
    model->train();
    layer->weight.set_data(own);
  });
  CHECK(distance(expected, got) <= 1e-12);
  // The pass in evaluation had the averages.
  layer->eval();
  CHECK(distance(3 * layer->forward(held_out), y) <= 1e-12);
}

TEST_CASE("a weight that has got another dtype or size since the forward pass "
          "is refused in the backward pass") {
  actors env;
  auto refuses = [](errc code, torch::ScalarType type, const char* text,
                    const auto& change) {
    SynchronizedBatchNorm1d layer{3};
    layer->to(type);
    auto x = random(4).to(type).requires_grad_();
    auto y = layer->forward(x);
    change(layer);
    std::string said;
    CHECK(code_of([&] { y.sum().backward(); }, &said) == code);
    CHECK(contains(said, text));
  };
  refuses(errc::dtype_mismatch, torch::kFloat,
          "SynchronizedBatchNorm1d: backward: weight: expected Float, as in "
          "the forward pass, got Double",
          [](auto& layer) { layer->to(torch::kDouble); });
  refuses(errc::dtype_mismatch, torch::kDouble,
          "SynchronizedBatchNorm1d: backward: weight: expected Double, as in "
          "the forward pass, got Float",
          [](auto& layer) { layer->to(torch::kFloat); });
  refuses(errc::shape_mismatch, torch::kDouble,
          "SynchronizedBatchNorm1d: backward: weight: expected 3 channels, as "
          "in the forward pass, got a "
          "shape of 1 dimensions and 2 elements",
          [](auto& layer) {
            layer->weight.set_data(torch::ones({2}, torch::kDouble));
          });
}

TEST_CASE(
    "an input that has got another dtype since the forward pass is refused "
    "in the backward pass") {
  for (auto [type, other] : {std::pair{torch::kFloat, torch::kDouble},
                             std::pair{torch::kDouble, torch::kFloat}}) {
    SynchronizedBatchNorm1d layer{3};
    layer->to(type);
    auto x = random(4).to(type).requires_grad_();
    auto y = layer->forward(x);
    x.set_data(x.detach().to(other));
    std::string said;
    CHECK(code_of([&] { y.sum().backward(); }, &said) == errc::dtype_mismatch);
    CHECK(contains(said, "backward: input: expected "));
  }
}

TEST_CASE("a weight that is no longer contiguous in the backward pass is read "
          "as it is") {
  SynchronizedBatchNorm1d layer{3};
  layer->to(torch::kDouble);
  torch::NoGradGuard no_grad;
  layer->weight.uniform_(0.5, 1.5);
  auto strided = torch::empty({3, 2}, torch::kDouble).select(1, 0);
  strided.copy_(layer->weight);
  torch::AutoGradMode with_grad{true};
  auto x = random(5);
  auto dy = torch::randn_like(x);
  auto expected = gradient(layer, x, dy, [] {});
  auto got = gradient(layer, x, dy, [&] { layer->weight.set_data(strided); });
  CHECK(distance(expected, got) <= 1e-12);
}

TEST_CASE("copies of a model that was made under InferenceMode run outside of "
          "it in evaluation, as the model does") {
  actors env;
  SynchronizedBatchNorm1d layer{nullptr};
  {
    c10::InferenceMode inference;
    layer = SynchronizedBatchNorm1d{3};
    layer->to(torch::kDouble);
  }
  layer->eval();
  torch::NoGradGuard no_grad;
  DataParallelWithCallback model{env.system, layer, on_patient_cpus(2)};
  model->eval();
  for (int pass = 0; pass < 2; ++pass) {
    auto x = random(4);
    CHECK(distance(layer->forward(x), model->forward(x)) <= 1e-12);
  }
}

/// Clips its weight before it uses it.
struct ClippedImpl : torch::nn::Module {
  explicit ClippedImpl(torch::Device device = torch::kCPU)
      : weight{register_parameter("weight", torch::ones({2, 3}, device))} {}

  std::shared_ptr<torch::nn::Module>
  clone(const torch::optional<torch::Device>& device) const override {
    return std::make_shared<ClippedImpl>(device.value_or(torch::kCPU));
  }

  Tensor forward(const Tensor& x) {
    torch::NoGradGuard no_grad;
    weight.clamp_(-0.2, 0.2);
    torch::AutoGradMode with_grad{true};
    return x.mm(weight.t());
  }

  Tensor weight;
};

TEST_CASE("what a copy writes to its parameters changes no graph of a copy on "
          "another device") {
  // Where a tensor has a shape and a version, and no elements.
  const torch::Device other{torch::kMeta};
  replica_set set{std::make_shared<ClippedImpl>(), {torch::kCPU, other}};
  auto copy = [&](std::size_t r) {
    return std::dynamic_pointer_cast<ClippedImpl>(set.copies()[r]);
  };
  for (int pass = 0; pass < 2; ++pass) {
    set.refresh();
    auto x = torch::randn({4, 3}).requires_grad_();
    auto y = copy(0)->forward(x);
    copy(1)->forward(torch::empty({4, 3}, other));
    y.backward(torch::ones_like(y));
    CHECK(distance(x.grad(), torch::full({4, 3}, 0.4)) <= 1e-6);
  }
}

TEST_CASE("copies that were made under InferenceMode learn statistics outside "
          "of it, as the model does, also with weights that were made there") {
  actors env;
  SynchronizedBatchNorm1d layer{3};
  layer->to(torch::kDouble);
  {
    c10::InferenceMode inference;
    layer->weight.set_requires_grad(false);
    layer->weight.set_data(torch::full({3}, 2, torch::kDouble));
  }
  SynchronizedBatchNorm1d plain{
      std::dynamic_pointer_cast<SynchronizedBatchNorm1dImpl>(layer->clone())};
  DataParallelWithCallback model{env.system, layer, on_patient_cpus(2)};
  {
    c10::InferenceMode inference;
    evaluate(model);
  }
  torch::NoGradGuard no_grad;
  for (int pass = 0; pass < 2; ++pass) {
    auto x = random(6);
    CHECK(distance(plain->forward(x), model->forward(x)) <= 1e-12);
  }
  CHECK(distance(plain->running_var, layer->running_var) <= 1e-12);
}

/// libtorch's own norm.
struct PlainNormImpl : torch::nn::Cloneable<PlainNormImpl> {
  PlainNormImpl() {
    reset();
  }

  void reset() override {
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
  }

  Tensor forward(const Tensor& x) {
    return norm(x);
  }

  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(PlainNorm);

TEST_CASE("a graph through libtorch's own norm in evaluation notices that its "
          "statistics were written to, on each copy") {
  actors env;
  for (std::size_t r = 0; r < 2; ++r) {
    PlainNorm net;
    DataParallelWithCallback model{env.system, net, on_patient_cpus(2)};
    model->eval();
    std::vector<Tensor> xs;
    for (int i = 0; i < 2; ++i)
      xs.push_back(torch::randn({4, 3}).requires_grad_());
    auto ys = model->parallel_apply(xs);
    torch::NoGradGuard no_grad;
    net->norm->running_var.fill_(100);
    model->parallel_apply({torch::randn({4, 3}), torch::randn({4, 3})});
    CHECK_THROWS_WITH_AS(ys[r].backward(torch::ones_like(ys[r])),
                         doctest::Contains("modified by an inplace operation"),
                         c10::Error);
  }
}

TEST_CASE("two passes in training through libtorch's own norm have one "
          "backward pass, as the model's own have") {
  actors env;
  PlainNorm net;
  DataParallelWithCallback model{env.system, net, on_patient_cpus(2)};
  auto x = torch::randn({8, 3}).requires_grad_();
  auto y = model->forward(x) + model->forward(x);
  y.backward(torch::randn_like(y));
  CHECK(x.grad().defined());
}

TEST_CASE("a model with a sparse tensor is refused by the tensor's path") {
  PlainNorm net;
  net->norm->register_buffer("sparse", torch::eye(3).to_sparse());
  std::string said;
  CHECK(code_of([&] { replica_set(net.ptr(), {torch::kCPU}); }, &said)
        == errc::invalid_argument);
  CHECK(contains(said, "model: norm.sparse: expected a dense tensor, got "
                       "Sparse"));
}

TEST_CASE("a loss that somebody holds when its graph is over keeps no input of "
          "a synchronized layer, also of second derivatives") {
  actors env;
  std::vector<std::shared_ptr<SynchronizedBatchNorm1dImpl>> copies;
  for (int r = 0; r < 2; ++r) {
    copies.push_back(std::make_shared<SynchronizedBatchNorm1dImpl>(3));
    copies.back()->to(torch::kDouble);
  }
  synchronize(env.system, copies, patient());
  std::vector<Tensor> losses(2);
  std::vector<std::size_t> before(2), after(2);
  rethrow_first(on_threads(2, [&](std::size_t r) {
    auto x = random(4).requires_grad_();
    auto hidden = x * 1.5;
    auto storage = hidden.storage();
    before[r] = storage.use_count();
    auto y = copies[r]->forward(hidden);
    auto dx = torch::autograd::grad({y.square().sum()}, {x}, {}, true, true)[0];
    losses[r] = dx.square().sum();
    losses[r].backward();
    y = dx = Tensor{};
    after[r] = storage.use_count();
  }));
  CHECK(after == before);
}

TEST_CASE("a data-parallel pass keeps no input, with or without a graph that "
          "nobody holds") {
  actors env;
  DataParallelWithCallback model{env.system, SynchronizedBatchNorm1d{3},
                                 on_patient_cpus(2)};
  std::vector<Tensor> x;
  for (int r = 0; r < 2; ++r)
    x.push_back(torch::randn({4, 3}));
  for (auto with_graph : {true, false}) {
    torch::AutoGradMode mode{with_graph};
    model->parallel_apply(x);
    for (const auto& part : x)
      CHECK(part.use_count() == 1);
  }
}

TEST_CASE(
    "a loss that somebody holds when its graph is over keeps no weight of "
    "a synchronized layer") {
  SynchronizedBatchNorm1d layer{3};
  layer->weight.set_requires_grad(false);
  auto before = layer->weight.use_count();
  auto loss = layer->forward(torch::randn({4, 3}).requires_grad_()).sum();
  CHECK(layer->weight.use_count() > before);
  loss.backward();
  CHECK(layer->weight.use_count() == before);
}

} // namespace

} // namespace syncnorm::nn::test
