// Several threads that pass backward through one graph.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"

#include <atomic>

namespace syncnorm::nn::test {

namespace {

/// What libtorch's own layer says of a second pass through a graph that the
/// first has not kept.
std::string plain_text_of_a_second_pass() {
  auto y = torch::nn::BatchNorm1d(2)->forward(torch::randn({4, 2})).sum();
  y.backward();
  try {
    y.backward();
  } catch (const c10::Error& x) {
    return x.what_without_backtrace();
  }
  return {};
}

/// Passes backward through `y` on two threads at once. Each has its gradient,
/// or finds the graph over.
void pass_on_two_threads(const Tensor& y) {
  std::vector<Tensor> outputs{(y * 3).sum(), (y + 1).sum()};
  std::atomic<int> ready = 0;
  auto thrown = on_threads(2, [&](std::size_t i) {
    ++ready;
    while (ready.load() < 2) {
    }
    outputs[i].backward();
  });
  for (const auto& x : thrown) {
    auto text = text_of(x);
    INFO(text);
    CHECK((!x || text.find("a second time") != std::string::npos));
  }
}

TEST_CASE("of two threads that pass backward through one graph at once, each "
          "has its gradient or libtorch's error") {
  actors env;
  SynchronizedBatchNorm2d layer{8};
  SynchronizedBatchNorm2d copied{8};
  DataParallelWithCallback parallel{
      env.system, copied,
      DataParallelWithCallbackOptions{}.devices(cpu_times(2))};
  for (int i = 0; i < 400; ++i) {
    auto x = torch::randn({64, 8, 4, 4}).requires_grad_();
    layer->train(i % 2 == 0);
    pass_on_two_threads(layer->forward(x * 2));
    pass_on_two_threads(parallel->forward(x * 2));
  }
}

TEST_CASE("a second pass through a graph that is over is refused in libtorch's "
          "words, in training, in evaluation and on copies") {
  auto expected = plain_text_of_a_second_pass();
  REQUIRE(expected.find("a second time") != std::string::npos);
  actors env;
  SynchronizedBatchNorm1d layer{2};
  DataParallelWithCallback parallel{env.system, layer, on_patient_cpus(2)};
  auto check_second = [&](const Tensor& y) {
    auto dy = torch::ones_like(y);
    y.backward(dy);
    try {
      y.backward(dy);
      FAIL("expected an error");
    } catch (const c10::Error& x) {
      CHECK(x.what_without_backtrace() == expected);
    }
  };
  auto x = torch::randn({6, 2});
  check_second(parallel->parallel_apply({x, x})[1]);
  check_second(layer->forward(x));
  layer->eval();
  check_second(layer->forward(x));
}

TEST_CASE("what a graph has saved stays until the last pass has ended that "
          "uses it, and no other begins when one has ended") {
  actors env;
  std::vector<std::shared_ptr<SynchronizedBatchNorm1dImpl>> copies;
  for (int i = 0; i < 2; ++i)
    copies.push_back(std::make_shared<SynchronizedBatchNorm1dImpl>(2));
  synchronize(env.system, copies, patient());
  std::vector<Tensor> x(2);
  std::vector<Tensor> y(2);
  rethrow_first(on_threads(2, [&](std::size_t r) {
    x[r] = torch::randn({4, 2}).requires_grad_();
    y[r] = copies[r]->forward(x[r]);
  }));
  auto sent = copies[0]->messages_sent();
  auto before = x[0].use_count();
  std::exception_ptr thrown;
  std::thread waiting{
      [&] { thrown = on_threads(1, [&](auto) { y[0].sum().backward(); })[0]; }};
  while (copies[0]->messages_sent() == sent)
    std::this_thread::yield();
  auto during = x[0].use_count();
  // As libtorch does when a pass of another thread has ended.
  y[0].grad_fn()->release_variables();
  CHECK(x[0].use_count() == during);
  CHECK_THROWS_WITH(y[0].sum().backward(), doctest::Contains("a second time"));
  y[1].sum().backward();
  waiting.join();
  rethrow_first({thrown});
  CHECK(x[0].use_count() < before);
}

} // namespace

} // namespace syncnorm::nn::test
