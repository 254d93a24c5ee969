// What a model's forward function does with a layer's output while the other
// copies of the data-parallel graph still run theirs.

#include "tests/nn/support.hpp"

#include "actors/nn/joint_rounds.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"

#include <atomic>
#include <functional>
#include <set>
#include <tuple>

namespace syncnorm::nn::test {

namespace {

/// Runs copies of one layer, each by `forward(layer, x)`.
template <class F>
DataParallelWithCallback on_copies(actors& env, SynchronizedBatchNorm1d& layer,
                                   std::size_t copies, F forward) {
  return DataParallelWithCallback{
      env.system, layer.ptr(),
      [forward](torch::nn::Module& m, const Tensor& x) -> Tensor {
        return forward(*m.as<SynchronizedBatchNorm1d>(), x);
      },
      DataParallelWithCallbackOptions{}.devices(cpu_times(copies))};
}

/// Copy r has r + 1 samples.
std::vector<Tensor> unequal_batches(std::size_t copies) {
  std::vector<Tensor> result;
  for (std::size_t r = 0; r < copies; ++r)
    result.push_back(torch::randn({static_cast<std::int64_t>(r) + 1, 3}));
  return result;
}

/// All that `all` of them wait for each other here.
class meeting {
public:
  explicit meeting(std::size_t all) : all_{all} {}

  void wait() {
    auto turn = come_.fetch_add(1) / all_;
    while (come_.load() / all_ == turn)
      std::this_thread::yield();
  }

private:
  std::size_t all_;
  std::atomic<std::size_t> come_ = 0;
};

TEST_CASE("a copy may register hooks for a layer's output while the others do, "
          "and each is called once, with that output's gradient") {
  actors env;
  constexpr std::size_t copies = 4;
  SynchronizedBatchNorm1d layer{3};
  meeting all{copies};
  std::vector<Tensor> seen(copies);
  std::vector<Tensor> kept(copies);
  std::atomic<int> calls = 0;
  auto parallel = on_copies(env, layer, copies, [&](auto& norm, auto& x) {
    auto r = static_cast<std::size_t>(x.size(0)) - 1;
    auto y = norm.forward(x);
    all.wait();
    y.retain_grad();
    y.register_hook([&, r](const Tensor& dy) {
      ++calls;
      seen[r] = dy;
    });
    kept[r] = y;
    return y;
  });
  for (int step = 0; step < 20; ++step) {
    calls = 0;
    auto y = parallel->parallel_apply(unequal_batches(copies));
    std::set<torch::autograd::Node*> nodes;
    auto loss = torch::zeros({});
    for (const auto& part : y) {
      nodes.insert(part.grad_fn().get());
      loss = loss + part.pow(3).sum();
    }
    CHECK(nodes.size() == copies);
    loss.backward();
    CHECK(calls.load() == static_cast<int>(copies));
    for (std::size_t r = 0; r < copies; ++r) {
      CHECK(distance(3 * y[r].square(), seen[r]) <= tolerance(torch::kFloat));
      CHECK(torch::equal(seen[r], kept[r].grad()));
    }
  }
}

TEST_CASE("the output of a copy under NoGradGuard requires no gradient, and "
          "those of the others have one device's") {
  actors env;
  SynchronizedBatchNorm1d layer{3};
  torch::nn::BatchNorm1d plain{3};
  auto parallel = on_copies(env, layer, 2, [](auto& of_copy, const Tensor& x) {
    torch::AutoGradMode mode{x.size(0) != 2};
    return of_copy.forward(x);
  });
  // More passes than the copies have tables for.
  for (int pass = 0; pass < 3; ++pass) {
    auto x = unequal_batches(2);
    auto free = x[0].clone().requires_grad_();
    auto expected = plain->forward(torch::cat({free, x[1]})).narrow(0, 0, 1);
    expected.square().sum().backward();
    for (auto& part : x)
      part.requires_grad_();
    auto y = parallel->parallel_apply(x);
    CHECK_FALSE(y[1].requires_grad());
    REQUIRE(y[0].requires_grad());
    y[0].square().sum().backward();
    CHECK(distance(free.grad(), x[0].grad()) <= 1e-4);
    CHECK(distance(plain->weight.grad(), layer->weight.grad()) <= 1e-4);
    CHECK_FALSE(x[1].grad().defined());
  }
}

TEST_CASE("a backward call through a layer is refused as long as copies are in "
          "their forward pass, and the object works again") {
  actors env;
  constexpr std::size_t copies = 4;
  SynchronizedBatchNorm1d layer{3};
  meeting all{copies};
  std::atomic<bool> early = true;
  std::atomic<int> refused = 0;
  auto parallel = on_copies(env, layer, copies, [&](auto& norm, auto& x) {
    auto y = norm.forward(x);
    if (early) {
      // Also when every copy has its statistics.
      all.wait();
      try {
        torch::autograd::grad({y.sum()}, {norm.weight}, {}, true);
      } catch (const error& thrown) {
        std::string text{thrown.what()};
        if (thrown.code() == errc::invalid_argument
            && text.find("a backward call inside of it") != text.npos)
          ++refused;
      }
    }
    return y;
  });
  std::vector<Tensor> y;
  for (auto now : {true, false}) {
    early = now;
    y = parallel->parallel_apply(unequal_batches(copies));
    CHECK(refused.load() == static_cast<int>(copies));
    // The pass is over.
    CHECK_NOTHROW(y[0].sum().backward());
  }
}

TEST_CASE("copies that go on when a call of a layer has failed for all of them "
          "are refused, and the object works again") {
  actors env;
  SynchronizedBatchNorm1d layer{3};
  auto parallel = on_copies(env, layer, 2, [](auto& norm, const Tensor& x) {
    // One sample in all, or none.
    std::ignore = code_of([&] { norm.forward(x.narrow(0, 0, x.size(0) % 2)); });
    return norm.forward(x);
  });
  auto run = [&](std::int64_t first, std::int64_t second) {
    return parallel->parallel_apply(
        {torch::randn({first, 3}), torch::randn({second, 3})});
  };
  std::string text;
  CHECK(code_of([&] { run(1, 2); }, &text) == errc::stale);
  CHECK(contains(text, "a call of the layer has failed before"));
  auto y = torch::cat(run(2, 4));
  CHECK(y.mean(0).abs().max().item<double>() < 1e-5);
}

TEST_CASE("a copy may call backward in its forward pass through the graph of a "
          "pass that is over") {
  actors env;
  SynchronizedBatchNorm1d layer{3};
  torch::nn::BatchNorm1d plain{3};
  Tensor former;
  auto parallel = on_copies(env, layer, 2, [&](auto& norm, const Tensor& x) {
    auto y = norm.forward(x);
    if (former.defined() && x.size(0) == 1)
      former.backward();
    return y;
  });
  auto x = unequal_batches(2);
  former = torch::cat(parallel->parallel_apply(x)).pow(3).sum();
  parallel->parallel_apply(unequal_batches(2));
  plain->forward(torch::cat(x)).pow(3).sum().backward();
  CHECK(distance(plain->weight.grad(), layer->weight.grad()) <= 1e-4);
}

/// Calls `body` in the backward pass.
struct in_backward : torch::autograd::Function<in_backward> {
  static Tensor forward(torch::autograd::AutogradContext* context, Tensor x,
                        std::function<void()>* body) {
    context->saved_data["body"] = reinterpret_cast<std::int64_t>(body);
    return x.clone();
  }

  static torch::autograd::tensor_list
  backward(torch::autograd::AutogradContext* context,
           torch::autograd::tensor_list grads) {
    (*reinterpret_cast<std::function<void()>*>(
        context->saved_data["body"].toInt()))();
    return {grads[0], Tensor{}};
  }
};

TEST_CASE("a layer that is called again in the backward pass refuses it on "
          "every copy, and the object works again") {
  actors env;
  constexpr std::size_t copies = 2;
  SynchronizedBatchNorm1d layer{3};
  int refused = 0;
  std::vector<std::function<void()>> again(copies);
  auto parallel = on_copies(env, layer, copies, [&](auto& norm, auto& x) {
    auto& call = again[static_cast<std::size_t>(x.size(0)) - 1];
    call = [&norm, &refused, x] {
      try {
        norm.forward(x);
      } catch (const error& thrown) {
        std::string text{thrown.what()};
        if (thrown.code() == errc::wrong_round
            && text.find("a recomputation in backward") != text.npos)
          ++refused;
      }
    };
    return in_backward::apply(norm.forward(x), &call);
  });
  for (int step = 1; step < 3; ++step) {
    auto y = parallel->parallel_apply(unequal_batches(copies));
    (y[0].sum() + y[1].sum()).backward();
    CHECK(refused == step * static_cast<int>(copies));
  }
}

TEST_CASE("a layer of one copy may be called again in the backward pass") {
  actors env;
  SynchronizedBatchNorm1d layer{3};
  Tensor again;
  std::function<void()> call;
  auto parallel = on_copies(env, layer, 1, [&](auto& norm, const Tensor& x) {
    call = [&norm, &again, x] { again = norm.forward(x); };
    return in_backward::apply(norm.forward(x), &call);
  });
  auto y = parallel->forward(torch::randn({4, 3}));
  y.sum().backward();
  CHECK(distance(y, again) <= 1e-6);
}

detail::saved_part_ptr part_to_lay() {
  auto result = std::make_shared<detail::saved_part>();
  result->like_y = torch::zeros({1});
  return result;
}

TEST_CASE("a copy that is late in a round gets its node although another one "
          "has failed in the next, and nothing of that or a later one") {
  detail::joint_rounds table{2};
  table.post(0, 0, part_to_lay());
  table.post(1, 0, part_to_lay());
  std::ignore = table.join(1, 0);
  table.post(1, 1, part_to_lay());
  table.abandon(1);
  table.abandon(2);
  CHECK_NOTHROW(std::ignore = table.join(0, 0));
  for (auto round : {1U, 2U})
    CHECK(code_of([&] { std::ignore = table.join(0, round); }) == errc::stale);
}

} // namespace

} // namespace syncnorm::nn::test
