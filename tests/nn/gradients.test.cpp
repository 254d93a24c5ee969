// A layer's gradients as tensors.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"

namespace syncnorm::nn::test {

namespace {

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

} // namespace

} // namespace syncnorm::nn::test
