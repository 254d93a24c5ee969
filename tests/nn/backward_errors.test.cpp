// What goes wrong in a backward pass, or between the two, and what it says.

#include "tests/nn/patient_layers.hpp"
#include "tests/nn/support.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"
#include "syncnorm/nn/module_traits.hpp"

#include <tuple>

namespace syncnorm::nn::test {

namespace {

TEST_CASE("a layer that throws in its backward pass ends the wait of the "
          "others, also for second derivatives") {
  actors env;
  for (auto twice : {false, true}) {
    CAPTURE(twice);
    auto layers = patient_layers(env.system, 3);
    auto thrown = on_threads(3, [&](std::size_t r) {
      auto scale = torch::ones({}).requires_grad_();
      auto x = torch::randn({2, 2, 3, 3}) * scale;
      auto y = layers[r]->forward(x);
      if (r == 1)
        x.mul_(2);
      std::ignore =
          torch::autograd::grad({y.square().sum()}, {scale}, {}, twice, twice);
    });
    for (std::size_t r = 0; r < 3; ++r) {
      auto text = text_of(thrown[r]);
      CHECK(contains(text, "modified by an inplace operation"));
      CHECK(contains(text, r == 1 ? "" : "replica 1"));
      // libtorch's stack trace is for the one who called it.
      CHECK((r == 1 || !contains(text, "frame #0")));
    }
  }
}

TEST_CASE("a second pass through a graph that is over is its caller's error "
          "alone") {
  actors env;
  auto layers = patient_layers(env.system, 2);
  for (auto round = 0; round < 2; ++round)
    rethrow_first(on_threads(2, [&](std::size_t r) {
      auto x = torch::randn({2, 2, 3, 3}).requires_grad_();
      auto y = layers[r]->forward(x).sum();
      y.backward();
      if (r == 1)
        CHECK_THROWS_WITH(y.backward(), doctest::Contains("a second time"));
    }));
}

/// The copies' outputs, which require gradients.
std::vector<Tensor> outputs_of(
    const std::vector<std::shared_ptr<SynchronizedBatchNorm2dImpl>>& copies) {
  std::vector<Tensor> y(copies.size());
  rethrow_first(on_threads(copies.size(), [&](std::size_t r) {
    y[r] = copies[r]->forward(torch::randn({2, 2, 3, 3}).requires_grad_());
  }));
  return y;
}

TEST_CASE("a copy whose master goes before its backward pass learns of which "
          "layer and round") {
  actors env;
  auto layers = patient_layers(env.system, 2);
  auto y = outputs_of(layers);
  layers[0].reset();
  CHECK_THROWS_WITH_AS(
      y[1].sum().backward(),
      doctest::Contains("layer the SynchronizedBatchNorm2d, round 2: "), error);
}

TEST_CASE("the actor system ends while outputs of copies live that were "
          "released or destroyed, or whose backward pass has failed") {
  std::vector<Tensor> y;
  for (auto how : {"released", "destroyed", "failed"}) {
    CAPTURE(how);
    actors env;
    auto layers = patient_layers(env.system, 3);
    y = outputs_of(layers);
    if (how == std::string{"failed"}) {
      give_up(*layers[2], "out of memory");
      // On this thread, where libtorch keeps the graph until it ends.
      CHECK_THROWS_WITH_AS(y[0].sum().backward(),
                           doctest::Contains("out of memory"), error);
    }
    if (how != std::string{"destroyed"})
      desynchronize(layers);
  }
}

TEST_CASE("a backward pass through copies that were released is refused at "
          "once, except where a copy is the only one") {
  actors env;
  auto layers = patient_layers(env.system, 2);
  auto y = outputs_of(layers);
  desynchronize(layers);
  for (std::size_t r = 0; r < 2; ++r) {
    std::string text;
    CHECK(code_of([&] { y[r].sum().backward(); }, &text) == errc::stale);
    CHECK(contains(text, "layer the SynchronizedBatchNorm2d, copy "
                             + std::to_string(r)
                             + ": it was released or destroyed"));
  }
  auto alone = patient_layers(env.system, 1);
  auto x = torch::randn({2, 2, 3, 3}).requires_grad_();
  auto z = alone[0]->forward(x);
  alone.clear();
  z.square().sum().backward();
  CHECK(x.grad().defined());
}

TEST_CASE("a backward pass in which a copy cannot take part, for it has no "
          "graph, is refused at once; the next that has all is not") {
  actors env;
  for (std::size_t without : {0, 2}) {
    auto layers = patient_layers(env.system, 3);
    std::vector<Tensor> y(3);
    // Two calls, of which one copy records the second alone.
    std::vector<Tensor> z(3);
    rethrow_first(on_threads(3, [&](std::size_t r) {
      auto x = torch::randn({2, 2, 3, 3});
      {
        torch::AutoGradMode mode{r != without};
        y[r] = layers[r]->forward(x);
      }
      z[r] = layers[r]->forward(x);
    }));
    CHECK_FALSE(y[without].requires_grad());
    rethrow_first(
        on_threads(3, [&](std::size_t r) { z[r].square().sum().backward(); }));
    for (std::size_t r = 0; r < 3; ++r) {
      if (r == without)
        continue;
      std::string text;
      CHECK(code_of([&] { y[r].sum().backward(); }, &text)
            == errc::invalid_argument);
      CHECK(contains(text, "copy " + std::to_string(without) + " has none"));
    }
  }
}

TEST_CASE("a copy without a graph is named by its number among all, not in its "
          "group") {
  actors env;
  auto layers = patient_layers(env.system, 4, 2);
  std::vector<Tensor> y(4);
  rethrow_first(on_threads(4, [&](std::size_t r) {
    torch::AutoGradMode mode{r != 3};
    y[r] = layers[r]->forward(torch::randn({2, 2, 3, 3}));
  }));
  std::string text;
  CHECK(code_of([&] { y[2].sum().backward(); }, &text)
        == errc::invalid_argument);
  CHECK(contains(text, "copy 3 has none"));
}

TEST_CASE("a copy that waits in its backward pass while the copies are "
          "released learns that the others have gone") {
  actors env;
  for (std::size_t waiting : {std::size_t{0}, std::size_t{2}}) {
    auto layers = patient_layers(env.system, 3);
    auto y = outputs_of(layers);
    auto before = layers[waiting]->messages_sent();
    std::string text;
    std::thread waiter{[&] {
      CHECK(code_of([&] { y[waiting].sum().backward(); }, &text)
            == (waiting == 0 ? errc::participant_down : errc::master_down));
    }};
    while (layers[waiting]->messages_sent() == before)
      std::this_thread::yield();
    desynchronize(layers);
    waiter.join();
    CHECK(contains(text, "layer the SynchronizedBatchNorm2d, round 2: "));
  }
}

} // namespace

} // namespace syncnorm::nn::test
