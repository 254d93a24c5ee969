// Copies that own their graph and their thread: exchange in backward by
// messages.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/synchronize_apart.hpp"

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

/// What copies give, forward and backward, for the parts of one batch.
std::vector<Tensor> results_of(std::vector<SynchronizedBatchNorm2d>& copies) {
  torch::manual_seed(3);
  auto n = static_cast<std::int64_t>(copies.size());
  auto x = torch::randn({2 * n, 5, 3, 4}, torch::kDouble).chunk(n);
  std::vector<Tensor> result(2 * copies.size());
  rethrow_first(on_threads(copies.size(), [&](std::size_t r) {
    auto input = x[r].clone().requires_grad_();
    result[2 * r] = copies[r]->forward(input);
    result[2 * r].square().sum().backward();
    result[2 * r + 1] = input.grad();
  }));
  return result;
}

void check_copies_apart(std::size_t copies) {
  actors env;
  auto together = make_copies(copies, 5);
  synchronize(env.system, modules_of(together));
  auto apart = make_copies(copies, 5);
  auto modules = modules_of(apart);
  // Twice: copies are released first.
  for (int time = 0; time < 2; ++time) {
    auto masters =
        lead_copies(env.system, modules[0], static_cast<std::int64_t>(copies));
    REQUIRE(masters.size() == 1);
    for (std::size_t r = 1; r < copies; ++r)
      follow_copies(env.system, modules[r], static_cast<std::int64_t>(r),
                    masters);
  }
  auto expected = results_of(together);
  auto found = results_of(apart);
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(torch::equal(expected[i], found[i]));
}

TEST_CASE("copies that come one by one give the same bits as copies that are "
          "synchronized together, also by relays above the fan-in") {
  check_copies_apart(3);
  check_copies_apart(20);
}

TEST_CASE("a copy whose layers nobody leads is refused by the layer") {
  actors env;
  auto modules = modules_of(make_copies(2, 5));
  torch::nn::Sequential outer{SynchronizedBatchNorm2d{5}};
  auto masters = lead_copies(env.system, modules[0], 2);
  CHECK_THROWS_WITH_AS(follow_copies(env.system, outer.ptr(), 1, masters),
                       doctest::Contains("layer \"0\": expected its master"),
                       error);
  CHECK_THROWS_AS(follow_copies(env.system, modules[1], 0, masters), error);
  CHECK_THROWS_AS((void) lead_copies(env.system, modules[0], 0), error);
}

} // namespace

} // namespace syncnorm::nn::test
