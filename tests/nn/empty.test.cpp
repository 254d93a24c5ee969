// Batches without elements, with gradients of any strides.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"

namespace syncnorm::nn::test {

namespace {

/// The gradient of a sum is one element that is expanded.
template <class Layer>
void check_without_elements(const std::vector<std::int64_t>& sizes) {
  CAPTURE(sizes);
  for (auto training : {true, false}) {
    Layer layer{3};
    layer->train(training);
    auto x = torch::zeros(sizes).requires_grad_();
    auto y = layer->forward(x);
    y.sum().backward();
    CHECK(y.sizes() == x.sizes());
    CHECK(x.grad().sizes() == x.sizes());
    CHECK(torch::equal(layer->weight.grad(), torch::zeros({3})));
    CHECK(torch::equal(layer->running_mean, torch::zeros({3})));
  }
}

TEST_CASE("a batch without samples or without spatial elements goes forward "
          "and backward, and changes nothing") {
  check_without_elements<SynchronizedBatchNorm1d>({0, 3});
  check_without_elements<SynchronizedBatchNorm1d>({0, 3, 5});
  check_without_elements<SynchronizedBatchNorm1d>({4, 3, 0});
  check_without_elements<SynchronizedBatchNorm2d>({0, 3, 4, 4});
  check_without_elements<SynchronizedBatchNorm2d>({2, 3, 0, 4});
  check_without_elements<SynchronizedBatchNorm3d>({0, 3, 2, 4, 4});
}

TEST_CASE("a batch without elements has gradients of zero that can be derived "
          "again") {
  SynchronizedBatchNorm1d layer{3};
  auto x = torch::zeros({0, 3}).requires_grad_();
  auto first =
      torch::autograd::grad({layer->forward(x).sum()},
                            {x, layer->weight, layer->bias}, {}, true, true);
  CHECK(first[0].sizes() == x.sizes());
  CHECK(torch::equal(first[1], torch::zeros({3})));
  CHECK(torch::equal(first[2], torch::zeros({3})));
  auto second = torch::autograd::grad({first[1].sum()}, {x}, {}, true, true);
  CHECK(second[0].sizes() == x.sizes());
}

/// A batch with samples, and what libtorch's layer makes of it.
struct with_samples {
  with_samples() {
    plain->to(torch::kDouble);
    auto whole = x.detach().clone().requires_grad_();
    (plain->forward(whole) * 3).sum().backward();
    dx = whole.grad();
  }

  /// The same for a layer, in two parts of which the second is empty.
  void check(const Tensor& got_dx, const Tensor& got_bias_grad) const {
    CHECK(distance(dx, got_dx) <= 1e-10);
    CHECK(distance(plain->bias.grad(), got_bias_grad) <= 1e-10);
  }

  torch::nn::BatchNorm2d plain{3};
  Tensor x = torch::randn({2, 3, 4, 4}, torch::kDouble).requires_grad_();
  Tensor none = torch::zeros({0, 3, 4, 4}, torch::kDouble).requires_grad_();
  Tensor dx;
};

TEST_CASE("a copy with a graph of its own and an empty batch takes part in the "
          "backward pass of a sum") {
  actors env;
  with_samples expected;
  std::vector<std::shared_ptr<SynchronizedBatchNorm2dImpl>> copies;
  for (int r = 0; r < 2; ++r) {
    copies.push_back(std::make_shared<SynchronizedBatchNorm2dImpl>(3));
    copies.back()->to(torch::kDouble);
  }
  synchronize(env.system, copies);
  rethrow_first(on_threads(2, [&](std::size_t r) {
    auto& layer = *copies[r];
    try {
      (layer.forward(r == 0 ? expected.x : expected.none).sum() * 3).backward();
    } catch (const std::exception& x) {
      give_up(layer, x.what());
      throw;
    }
  }));
  expected.check(expected.x.grad(), copies[0]->bias.grad());
}

TEST_CASE("a data-parallel copy with an empty batch takes part in the backward "
          "pass of a sum") {
  actors env;
  with_samples expected;
  SynchronizedBatchNorm2d layer{3};
  layer->to(torch::kDouble);
  DataParallelWithCallback parallel{
      env.system, layer,
      DataParallelWithCallbackOptions{}.devices({torch::kCPU, torch::kCPU})};
  auto y = parallel->parallel_apply({expected.x, expected.none});
  (torch::cat(y).sum() * 3).backward();
  expected.check(expected.x.grad(), layer->bias.grad());
}

} // namespace

} // namespace syncnorm::nn::test
