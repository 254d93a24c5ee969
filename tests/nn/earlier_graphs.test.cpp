// What happens between a forward pass and its backward pass: other passes of
// the same copies, and changes to the model.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"

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
  refuses(
      errc::dtype_mismatch, torch::kFloat,
      "backward: weight: expected Float, as in the forward pass, got Double",
      [](auto& layer) { layer->to(torch::kDouble); });
  refuses(
      errc::dtype_mismatch, torch::kDouble,
      "backward: weight: expected Double, as in the forward pass, got Float",
      [](auto& layer) { layer->to(torch::kFloat); });
  refuses(
      errc::shape_mismatch, torch::kDouble,
      "backward: weight: expected 3 channels, as in the forward pass, got a "
      "shape of 1 dimensions and 2 elements",
      [](auto& layer) {
        layer->weight.set_data(torch::ones({2}, torch::kDouble));
      });
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

} // namespace

} // namespace syncnorm::nn::test
