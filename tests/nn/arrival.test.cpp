// Copies come to a layer in an order that the test chooses.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"

#include <algorithm>
#include <array>
#include <future>
#include <numeric>
#include <random>

namespace syncnorm::nn::test {

namespace {

constexpr std::size_t copies = 4;

/// Lets the copies come to each of a pass' rounds one after another: the next
/// one when the one before has sent its message.
class turnstile {
public:
  using copy_order = std::array<std::size_t, copies>;

  explicit turnstile(std::vector<copy_order> orders)
      : orders_{std::move(orders)},
        turns_(orders_.size()) {}

  /// Waits for the turn of `copy` to come to that round.
  void pass(std::size_t round, std::size_t copy) {
    if (round < turns_.size())
      turns_[round][copy].get_future().wait();
  }

  /// @param sent how many messages a copy has sent to the layer of a round.
  void
  conduct(const std::function<std::uint64_t(std::size_t, std::size_t)>& sent) {
    for (std::size_t round = 0; round < orders_.size(); ++round)
      for (auto copy : orders_[round]) {
        auto before = sent(round, copy);
        turns_[round][copy].set_value();
        while (sent(round, copy) == before)
          std::this_thread::yield();
      }
  }

private:
  std::vector<copy_order> orders_;
  std::vector<std::array<std::promise<void>, copies>> turns_;
};

/// Two norms, the first one beside other users of its input.
struct BranchesImpl : torch::nn::Cloneable<BranchesImpl> {
  torch::nn::Conv2d convolution{nullptr};
  SynchronizedBatchNorm2d first{nullptr};
  SynchronizedBatchNorm2d second{nullptr};
  std::size_t copy = 0;
  turnstile* way = nullptr;
  /// Whether backward has rounds as well.
  bool backward_too = false;

  BranchesImpl() {
    BranchesImpl::reset();
  }

  void reset() override {
    convolution = register_module(
        "convolution",
        torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 3).bias(false)));
    first = register_module("first", SynchronizedBatchNorm2d(3));
    second = register_module("second", SynchronizedBatchNorm2d(3));
  }

  Tensor forward(const Tensor& x) {
    auto h = convolution->forward(x);
    auto y = norm(first, h, 0, 3);
    auto all = y + h.sin() + h.cos() + h.tanh();
    return norm(second, all, 1, 2);
  }

  /// The layer of a round: two forward, then two backward.
  [[nodiscard]] const SynchronizedBatchNorm2d& at(std::size_t round) const {
    return round == 0 || round == 3 ? first : second;
  }

private:
  Tensor norm(SynchronizedBatchNorm2d& layer, const Tensor& x,
              std::size_t round, std::size_t backward_round) {
    if (way != nullptr)
      way->pass(round, copy);
    auto y = layer->forward(x);
    if (way != nullptr && backward_too && y.requires_grad())
      y.register_hook([through = way, copy = copy, backward_round](Tensor) {
        through->pass(backward_round, copy);
      });
    return y;
  }
};
TORCH_MODULE(Branches);

/// What must be the same bits.
using outcome = std::vector<Tensor>;

void keep(outcome& out, const Tensor& x) {
  out.push_back(x.detach().clone());
}

void keep_model(outcome& out, const torch::nn::Module& model) {
  for (const auto& x : model.parameters())
    keep(out, x.grad());
  for (const auto& x : model.buffers())
    keep(out, x);
}

void require_same_bits(const outcome& expected, const outcome& got) {
  REQUIRE(expected.size() == got.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    REQUIRE(torch::equal(expected[i], got[i]));
  }
}

std::vector<turnstile::copy_order> random_orders(std::size_t rounds,
                                                 std::mt19937& random) {
  std::vector<turnstile::copy_order> result(rounds);
  for (auto& order : result) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
  }
  return result;
}

std::vector<Tensor> inputs() {
  torch::manual_seed(5);
  std::vector<Tensor> result;
  for (std::size_t r = 0; r < copies; ++r)
    result.push_back(
        (torch::randn({static_cast<std::int64_t>(r) + 1, 2, 6, 5}) + 30)
            .requires_grad_());
  return result;
}

constexpr int steps = 3;
constexpr int shuffles = 8;

/// A run of a data-parallel graph, whose copies have messages in forward only.
outcome run_joint(std::mt19937& random) {
  actors env;
  Branches net;
  DataParallelWithCallback parallel{
      env.system, net,
      DataParallelWithCallbackOptions{}.devices(
          std::vector<torch::Device>(copies, torch::Device{torch::kCPU}))};
  outcome result;
  auto x = inputs();
  // Whose copies are there after the first pass.
  parallel->parallel_apply(x);
  auto all = parallel->copies();
  for (int i = 0; i < steps; ++i) {
    turnstile way{random_orders(2, random)};
    for (std::size_t r = 0; r < copies; ++r) {
      all[r]->as<Branches>()->copy = r;
      all[r]->as<Branches>()->way = &way;
    }
    std::thread conductor{[&] {
      way.conduct([&](std::size_t round, std::size_t r) {
        return all[r]->as<Branches>()->at(round)->messages_sent();
      });
    }};
    auto y = parallel->parallel_apply(x);
    conductor.join();
    auto loss = torch::zeros({});
    for (const auto& part : y)
      loss = loss + part.pow(3).sum();
    loss.backward();
    for (std::size_t r = 0; r < copies; ++r) {
      keep(result, y[r]);
      keep(result, x[r].grad());
    }
    keep_model(result, *net);
  }
  return result;
}

/// A run of copies with graphs and threads of their own.
outcome run_apart(std::mt19937& random) {
  actors env;
  std::vector<Branches> nets{Branches()};
  std::vector<std::shared_ptr<torch::nn::Module>> modules{nets[0].ptr()};
  for (std::size_t r = 1; r < copies; ++r) {
    modules.push_back(nets[0]->clone());
    nets.emplace_back(std::dynamic_pointer_cast<BranchesImpl>(modules.back()));
  }
  synchronize(env.system, modules);
  outcome result;
  auto x = inputs();
  for (int i = 0; i < steps; ++i) {
    turnstile way{random_orders(4, random)};
    std::thread conductor{[&] {
      way.conduct([&](std::size_t round, std::size_t r) {
        return nets[r]->at(round)->messages_sent();
      });
    }};
    std::vector<Tensor> y(copies);
    auto thrown = on_threads(copies, [&](std::size_t r) {
      nets[r]->copy = r;
      nets[r]->way = &way;
      nets[r]->backward_too = true;
      y[r] = nets[r]->forward(x[r]);
      y[r].pow(3).sum().backward();
    });
    conductor.join();
    rethrow_first(thrown);
    for (std::size_t r = 0; r < copies; ++r) {
      keep(result, y[r]);
      keep(result, x[r].grad());
      keep_model(result, *nets[r]);
    }
  }
  return result;
}

TEST_CASE("whatever order the copies of a data-parallel graph arrive in, "
          "outputs, gradients and running statistics are the same bits") {
  std::mt19937 random{1};
  auto expected = run_joint(random);
  for (int i = 0; i < shuffles; ++i)
    require_same_bits(expected, run_joint(random));
}

TEST_CASE("whatever order copies with graphs of their own arrive in, forward "
          "and backward, everything is the same bits") {
  std::mt19937 random{2};
  auto expected = run_apart(random);
  for (int i = 0; i < shuffles; ++i)
    require_same_bits(expected, run_apart(random));
}

} // namespace

} // namespace syncnorm::nn::test
