// Copies that own their graph and their thread: exchange in backward by
// messages.

#include "tests/nn/support.hpp"

namespace syncnorm::nn::test {

namespace {

std::vector<SynchronizedBatchNorm2d> make_copies(std::size_t n,
                                                 std::int64_t channels) {
  std::vector<SynchronizedBatchNorm2d> result;
  for (std::size_t i = 0; i < n; ++i) {
    result.emplace_back(SynchronizedBatchNorm2dOptions(channels));
    result.back()->to(torch::kDouble);
  }
  return result;
}

std::vector<std::shared_ptr<torch::nn::Module>>
modules_of(const std::vector<SynchronizedBatchNorm2d>& copies) {
  std::vector<std::shared_ptr<torch::nn::Module>> result;
  for (const auto& copy : copies)
    result.push_back(copy.ptr());
  return result;
}

TEST_CASE("four CPU copies with graphs and threads of their own finish and "
          "equal one device") {
  actors env;
  auto copies = make_copies(4, 5);
  synchronize(env.system, modules_of(copies));
  torch::nn::BatchNorm2d plain{torch::nn::BatchNorm2dOptions(5)};
  plain->to(torch::kDouble);
  auto x = torch::randn({8, 5, 3, 4}, torch::kDouble).requires_grad_();
  auto dy = torch::randn_like(x);
  auto expected = plain->forward(x);
  expected.backward(dy);
  std::vector<Tensor> y(4);
  std::vector<Tensor> xs;
  for (auto& part : x.detach().chunk(4))
    xs.push_back(part.clone().requires_grad_());
  auto dys = dy.chunk(4);
  rethrow_first(on_threads(4, [&](std::size_t r) {
    y[r] = copies[r]->forward(xs[r]);
    y[r].backward(dys[r]);
  }));
  std::vector<Tensor> dx;
  auto weight_grad = torch::zeros({5}, torch::kDouble);
  for (std::size_t r = 0; r < 4; ++r) {
    dx.push_back(xs[r].grad());
    weight_grad += copies[r]->weight.grad();
    CHECK(distance(plain->running_var, copies[r]->running_var) <= 1e-10);
    CHECK(copies[r]->num_batches_tracked.item<double>() == 1);
    CHECK(copies[r]->messages_sent() == 2);
  }
  CHECK(distance(expected, torch::cat(y)) <= 1e-10);
  CHECK(distance(x.grad(), torch::cat(dx)) <= 1e-10);
  CHECK(distance(plain->weight.grad(), weight_grad) <= 1e-10);
}

} // namespace

} // namespace syncnorm::nn::test
