// Copies that follow a model from pass to pass: what may come between a forward
// pass and its backward pass, and what may change between two passes.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"
#include "syncnorm/nn/scatter_gather.hpp"

#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/version.h>

#include <atomic>
#include <stdexcept>
#include <tuple>

namespace syncnorm::nn::test {

namespace {

DataParallelWithCallbackOptions on_two_cpus() {
  return DataParallelWithCallbackOptions{}.devices(
      {torch::Device{torch::kCPU}, torch::Device{torch::kCPU}});
}

/// A net, run on two copies or as it is.
class followed_net {
public:
  explicit followed_net(bool on_copies) : on_copies_{on_copies} {
    net_->to(torch::kDouble);
  }

  /// The next batch, the same in each net. Making copies takes random numbers.
  Tensor batch() {
    torch::manual_seed(++batches_);
    return torch::randn({6, 3, 5, 5}, torch::kDouble) + 3;
  }

  Tensor run(const Tensor& x) {
    return on_copies_ ? parallel_->forward(x) : net_->forward(x);
  }

  torch::nn::Sequential& net() {
    return net_;
  }

  SynchronizedBatchNorm2dImpl& norm() {
    return *net_[1]->as<SynchronizedBatchNorm2d>();
  }

  void set_requires_grad(bool value) {
    for (auto& x : net_->parameters())
      x.set_requires_grad(value);
  }

  /// Gradients and buffers.
  [[nodiscard]] std::vector<Tensor> state() const {
    std::vector<Tensor> result;
    for (const auto& x : net_->parameters())
      result.push_back(x.grad());
    for (const auto& x : net_->buffers())
      result.push_back(x);
    return result;
  }

private:
  actors env_;
  torch::nn::Sequential net_{
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)),
      SynchronizedBatchNorm2d(4), torch::nn::Conv2d(4, 2, 3)};
  DataParallelWithCallback parallel_{env_.system, net_, on_two_cpus()};
  bool on_copies_;
  std::uint64_t batches_ = 0;
};

using followed_steps = std::function<void(followed_net&)>;

/// What `steps` leave in a net is the same whether it runs on copies or not.
void check_followed(const followed_steps& steps) {
  std::vector<std::vector<Tensor>> found;
  for (auto on_copies : {false, true}) {
    followed_net on{on_copies};
    steps(on);
    found.push_back(on.state());
  }
  for (std::size_t i = 0; i < found[0].size(); ++i) {
    CAPTURE(i);
    REQUIRE(found[0][i].defined() == found[1][i].defined());
    if (found[0][i].defined())
      CHECK(distance(found[0][i], found[1][i]) <= 1e-10);
  }
}

/// A training step, after one as a first, with something between its forward
/// and its backward pass.
void check_followed_between(const followed_steps& between) {
  check_followed([&](followed_net& on) {
    on.run(on.batch());
    auto y = on.run(on.batch());
    between(on);
    y.square().sum().backward();
  });
}

void run_without_grad(followed_net& on) {
  torch::NoGradGuard no_grad;
  CHECK(!on.run(on.batch()).requires_grad());
}

TEST_CASE("a pass without gradients, in training or evaluation, leaves the "
          "graphs of former passes as they were") {
  check_followed_between(run_without_grad);
  check_followed_between([](followed_net& on) {
    on.net()->eval();
    run_without_grad(on);
    on.net()->train();
  });
}

TEST_CASE("parameters that are frozen for a pass get no gradient from it, and "
          "that of former passes all the same") {
  check_followed_between([](followed_net& on) {
    on.set_requires_grad(false);
    CHECK(!on.run(on.batch()).requires_grad());
    auto x = on.batch().requires_grad_();
    on.run(x).square().sum().backward();
    CHECK(x.grad().abs().max().item<double>() > 0);
    on.set_requires_grad(true);
  });
  check_followed_between([](followed_net& on) {
    auto first = on.net()->parameters()[0];
    first.set_requires_grad(false);
    on.run(on.batch()).square().sum().backward();
    CHECK(!first.grad().defined());
    first.set_requires_grad(true);
    on.run(on.batch()).pow(3).sum().backward();
  });
}

TEST_CASE("second derivatives reach the model's parameters although a pass "
          "without gradients came after the first ones") {
  check_followed_between([](followed_net& on) {
    auto x = on.batch().requires_grad_();
    auto y = on.run(x).square().sum();
    auto dx = torch::autograd::grad({y}, {x}, {}, true, true)[0];
    run_without_grad(on);
    dx.square().sum().backward();
  });
}

TEST_CASE("copies whose first pass was under InferenceMode, in training or "
          "evaluation, can be trained") {
  for (auto training : {false, true}) {
    CAPTURE(training);
    check_followed([&](followed_net& on) {
      on.net()->train(training);
      {
        c10::InferenceMode inference;
        CHECK(!on.run(on.batch()).requires_grad());
      }
      on.net()->train();
      for (int i = 0; i < 2; ++i)
        on.run(on.batch()).square().sum().backward();
    });
  }
}

TEST_CASE("a model that was made under InferenceMode can run on copies there") {
  c10::InferenceMode inference;
  followed_net on{true};
  auto x = on.batch();
  on.net()->eval();
  CHECK(distance(on.net()->forward(x), on.run(x)) <= 1e-10);
}

TEST_CASE("parts that scatter makes on one device share neither memory nor "
          "version, and lead back to the input") {
  auto x = torch::randn({4, 3}).requires_grad_();
  auto before = x.detach().clone();
  auto parts = scatter(x, {torch::kCPU, torch::kCPU});
  parts[0].sub_(1);
  CHECK(parts[1]._version() == 0);
  CHECK(torch::equal(x, before));
  (parts[0].sum() + 2 * parts[1].sum()).backward();
  CHECK(x.grad()[0][0].item<float>() == 1);
  CHECK(x.grad()[3][0].item<float>() == 2);
}

/// Writes to its input before anything else.
struct overwritingImpl : torch::nn::Cloneable<overwritingImpl> {
  torch::nn::Conv2d conv{nullptr};
  SynchronizedBatchNorm2d norm{nullptr};

  overwritingImpl() {
    overwritingImpl::reset();
  }

  void reset() override {
    conv = register_module("conv", torch::nn::Conv2d(3, 4, 3));
    norm = register_module("norm", SynchronizedBatchNorm2d(4));
  }

  Tensor forward(const Tensor& x) {
    auto mine = x;
    mine.sub_(0.5);
    return norm->forward(conv->forward(mine));
  }
};
TORCH_MODULE(overwriting);

TEST_CASE("scatter takes dimensions from either end, and refuses others, an "
          "undefined tensor, no devices and no parts") {
  auto x = torch::randn({5, 3});
  auto expected = x.tensor_split(2);
  for (auto dim : {0, -2}) {
    auto parts = scatter(x, cpu_times(2), dim);
    for (std::size_t r = 0; r < 2; ++r)
      CHECK(torch::equal(expected[r], parts[r]));
  }
  for (auto dim : {-3, 2})
    CHECK(code_of([&] { std::ignore = scatter(x, cpu_times(2), dim); })
          == errc::invalid_argument);
  CHECK(code_of([&] { std::ignore = scatter(x, {}); })
        == errc::invalid_argument);
  CHECK(code_of([&] { std::ignore = scatter({}, cpu_times(2)); })
        == errc::invalid_argument);
  CHECK(code_of([&] { std::ignore = gather({}, torch::kCPU); })
        == errc::invalid_argument);
}

TEST_CASE("a model that writes to its input can be trained on copies") {
  actors env;
  overwriting net;
  DataParallelWithCallback parallel{env.system, net, on_two_cpus()};
  for (int i = 0; i < 50; ++i)
    CHECK_NOTHROW(parallel->forward(torch::randn({4, 3, 4, 4}))
                      .square()
                      .sum()
                      .backward());
}

TEST_CASE("momentum, epsilon and its mode may be changed between passes, as on "
          "one device") {
  check_followed([](followed_net& on) {
    on.run(on.batch()).square().sum().backward();
    on.norm().options.momentum(0.0).eps(0.5);
    on.run(on.batch()).square().sum().backward();
    on.norm().options.momentum(optional_momentum{}).eps_mode(eps_mode::clamp);
    on.run(on.batch() * 0.01).square().sum().backward();
  });
}

/// While one of these lives, CPUs are under autocast, as by Python's
/// `torch.autocast`.
class cpu_autocast {
public:
  cpu_autocast() {
    enable(true);
    at::autocast::increment_nesting();
  }
  cpu_autocast(const cpu_autocast&) = delete;
  cpu_autocast& operator=(const cpu_autocast&) = delete;
  ~cpu_autocast() {
    if (at::autocast::decrement_nesting() == 0)
      at::autocast::clear_cache();
    enable(false);
  }

private:
  static void enable(bool value) {
#if TORCH_VERSION_MAJOR < 2
    at::autocast::set_cpu_enabled(value);
#else
    at::autocast::set_autocast_enabled(at::kCPU, value);
#endif
  }
};

TEST_CASE("weights that change between passes under autocast count on copies, "
          "also after a pass that failed") {
  actors env;
  torch::nn::Conv2d net{torch::nn::Conv2dOptions(2, 4, 3)};
  auto fails = false;
  DataParallelWithCallback parallel{
      env.system, net.ptr(),
      [&](torch::nn::Module& m, const Tensor& x) {
        auto y = m.as<torch::nn::Conv2d>()->forward(x);
        if (fails)
          throw std::runtime_error{"after the weights were cast"};
        return y;
      },
      on_two_cpus()};
  auto x = torch::randn({4, 2, 5, 5});
  auto run = [&](auto& m) {
    cpu_autocast scope;
    return m->forward(x);
  };
  torch::NoGradGuard no_grad;
  for (auto broken : {false, true, false}) {
    fails = broken;
    if (broken)
      CHECK_THROWS_AS(run(parallel), std::runtime_error);
    else
      CHECK(torch::equal(run(net), run(parallel)));
    for (auto& weight : net->parameters())
      weight.mul_(2);
  }
}

TEST_CASE("copies have the types and the cache of the caller's autocast") {
  actors env;
  torch::nn::Sequential net{SynchronizedBatchNorm2d(2)};
  auto type = [] {
#if TORCH_VERSION_MAJOR < 2
    return at::autocast::get_autocast_gpu_dtype();
#else
    return at::autocast::get_autocast_dtype(at::kCUDA);
#endif
  };
  auto set_type = [](at::ScalarType to) {
#if TORCH_VERSION_MAJOR < 2
    at::autocast::set_autocast_gpu_dtype(to);
#else
    at::autocast::set_autocast_dtype(at::kCUDA, to);
#endif
  };
  std::atomic<int> as_caller{0};
  DataParallelWithCallback parallel{
      env.system, net.ptr(),
      [&](torch::nn::Module&, const Tensor& x) {
        if (type() == at::kBFloat16
            && !at::autocast::is_autocast_cache_enabled())
          ++as_caller;
        return x;
      },
      on_two_cpus()};
  auto before = type();
  set_type(at::kBFloat16);
  at::autocast::set_autocast_cache_enabled(false);
  std::ignore = parallel->forward(torch::randn({4, 2, 3, 3}));
  at::autocast::set_autocast_cache_enabled(true);
  set_type(before);
  CHECK(as_caller == 2);
}

TEST_CASE("outputs without dimensions are joined to a vector, whatever the "
          "dimension, and one alone stays as it is") {
  auto x = torch::tensor(2.0).requires_grad_();
  for (std::int64_t dim : {0, 1}) {
    auto all = gather({x * 1, x * 3}, torch::kCPU, dim);
    REQUIRE(all.sizes() == at::IntArrayRef{2});
    CHECK(all[1].item<double>() == 6);
    all.sum().backward();
  }
  CHECK(x.grad().item<double>() == 8);
  CHECK(gather({x}, torch::kCPU).dim() == 0);
}

struct one_worker_config : config {
  one_worker_config() {
    std::string name{"scheduler.max-threads"};
    set(syncnorm::detail::caf_line == 0 ? name : "caf." + name, std::size_t{1});
  }
};

TEST_CASE("a detached actor can train on copies, although there is only one "
          "worker for the layers' masters") {
  actors registered;
  one_worker_config cfg;
  caf::actor_system system{cfg};
  Tensor grad;
  system.spawn<caf::detached>([&](caf::event_based_actor*) {
    torch::nn::Sequential net{SynchronizedBatchNorm2d(3)};
    DataParallelWithCallback parallel{system, net, on_two_cpus()};
    parallel->forward(torch::randn({4, 3, 2, 2})).square().sum().backward();
    grad = net->parameters()[1].grad();
  });
  system.await_all_actors_done();
  CHECK(grad.defined());
}

} // namespace

} // namespace syncnorm::nn::test
