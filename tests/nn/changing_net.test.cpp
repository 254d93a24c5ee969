// A net that is changed between the passes of its copies, as its documentation
// allows, and a net of libtorch's alone to which the same is done.

#include "tests/nn/support.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::nn::test {

namespace {

// Of sums over a few hundred values and their second derivatives, in float64.
constexpr double rounding = 1e-8;

/// Whether the next forward call throws, of whichever copy.
using fuse = std::shared_ptr<std::atomic<bool>>;

template <class Norm>
struct changing_net_impl : torch::nn::Cloneable<changing_net_impl<Norm>> {
  changing_net_impl() {
    reset();
  }

  void reset() override {
    using namespace torch::nn;
    conv = this->register_module("conv",
                                 Conv2d{Conv2dOptions(2, 4, 3).padding(1)});
    norm = this->register_module("norm", Norm{4});
    tail = this->register_module(
        "tail", Sequential{Conv2d{Conv2dOptions(4, 3, 1)}, Norm{3}});
    for (int i = 0; i < scales; ++i)
      add_scale(i);
    for (int i = 0; i < shifts; ++i)
      add_shift(i);
  }

  Tensor forward(Tensor x) {
    x = torch::relu(norm->forward(conv->forward(x)));
    if (burns && burns->exchange(false))
      throw std::runtime_error{"a fault of the test's"};
    // All of them get the same tensor as their gradient.
    auto factor = torch::ones({1}, torch::kDouble);
    for (const auto& scale : this->parameters(false))
      factor = factor + scale;
    x = x * factor;
    for (const auto& shift : this->buffers(false))
      x = x + shift;
    return tail->forward(x);
  }

  void add_scale(int i) {
    this->register_parameter("scale" + std::to_string(i),
                             torch::ones({1}, torch::kDouble) * 1.5);
  }

  void add_shift(int i) {
    this->register_buffer("shift" + std::to_string(i),
                          torch::ones({1}, torch::kDouble));
  }

  torch::nn::Conv2d conv{nullptr};
  Norm norm{nullptr};
  torch::nn::Sequential tail{nullptr};
  int scales = 0;
  int shifts = 0;
  fuse burns;
};

using copied_net = changing_net_impl<SynchronizedBatchNorm2d>;
using plain_net = changing_net_impl<torch::nn::BatchNorm2d>;

/// A pass without its backward call.
struct open_pass {
  Tensor x;
  Tensor y;
  Tensor plain_x;
  Tensor plain_y;
  /// Whether parameters have been frozen, or not any more, since then: second
  /// derivatives take libtorch's as they are, and a copy's as they were.
  bool is_frozen_otherwise = false;
};

class changing_run {
public:
  changing_run(caf::actor_system& system, std::uint32_t seed)
      : random_{seed},
        parallel_{system, net_, on_patient_cpus(1 + below(4))} {
    torch::manual_seed(seed);
    net_->to(torch::kDouble);
    plain_->to(torch::kDouble);
    equalize();
  }

  void run() {
    for (int step = 0; step < 25; ++step) {
      CAPTURE(step);
      if (below(2) == 0)
        change();
      if (below(8) == 0)
        fail();
      else
        pass();
      while (open_.size() > below(3))
        close(below(open_.size()));
      check_nets();
    }
  }

private:
  std::size_t below(std::size_t n) {
    return random_() % n;
  }

  // -- what is changed --------------------------------------------------------

  /// The same for both nets.
  template <class F>
  void both(F f) {
    f(*net_);
    f(*plain_);
  }

  void change() {
    auto what = below(13);
    // Graphs are of the parameters as they were.
    if (what > 6)
      open_.clear();
    switch (what) {
    case 0:
      return both([on = below(2) == 0](auto& net) { net.train(on); });
    case 1:
      return both([on = below(2) == 0](auto& net) { net.norm->train(on); });
    case 2:
      parallel_->options.devices(cpu_times(1 + below(4)));
      return;
    case 3:
      return freeze_one();
    case 4:
      return freeze_all(below(2) == 0);
    case 5:
      return both([](auto& net) { net.add_scale(net.scales++); });
    case 6:
      return both([](auto& net) { net.add_shift(net.shifts++); });
    case 7:
      return change_norm();
    case 8:
      return change_one(
          [](Tensor& x, const Tensor& value) { x.set_data(value.clone()); });
    case 9:
      return change_one([](Tensor& x, const Tensor& value) {
        torch::NoGradGuard none;
        x.add_(value, 0.1);
      });
    case 10:
      both([](auto& net) { replace_norm(net); });
      return equalize();
    case 11:
      return reload();
    default:
      return both([](auto& net) {
        net.to(torch::kFloat);
        net.to(torch::kDouble);
      });
    }
  }

  void freeze_one() {
    change_one(
        [](Tensor& x, const Tensor&) { x.requires_grad_(!x.requires_grad()); });
    for (auto& it : open_)
      it.is_frozen_otherwise = true;
  }

  void freeze_all(bool frozen) {
    both([=](auto& net) {
      for (auto& x : net.parameters())
        x.requires_grad_(!frozen);
    });
    for (auto& it : open_)
      it.is_frozen_otherwise = true;
  }

  void change_norm() {
    optional_momentum momentum;
    if (below(3) != 0)
      momentum = 0.1 * static_cast<double>(1 + below(9));
    auto eps = below(2) == 0 ? 1e-5 : 1e-2;
    both([&](auto& net) { net.norm->options.momentum(momentum).eps(eps); });
  }

  /// The same parameter of both nets, by a value for it.
  template <class F>
  void change_one(F f) {
    auto mine = net_->parameters();
    auto plain = plain_->parameters();
    auto i = below(mine.size());
    auto value = torch::rand_like(mine[i]) + 0.5;
    f(mine[i], value);
    f(plain[i], value);
  }

  template <class Norm>
  static void replace_norm(changing_net_impl<Norm>& net) {
    Norm other{4};
    other->to(torch::kDouble);
    net.norm = net.replace_module("norm", other);
  }

  /// What is read is what was written.
  void reload() {
    std::stringstream file;
    torch::save(net_, file);
    torch::load(net_, file);
  }

  // -- passes -----------------------------------------------------------------

  Tensor make_batch() {
    auto samples = static_cast<std::int64_t>(1 + below(8));
    return torch::randn({samples, 2, 4, 4}, torch::kDouble) * 2 + 3;
  }

  /// Split evenly, or in parts of any size.
  Tensor run_copies(const Tensor& x) {
    auto copies = parallel_->options.devices().size();
    if (below(2) == 0)
      return parallel_->forward(x);
    std::vector<Tensor> parts;
    std::int64_t begin = 0;
    while (parts.size() + 1 < copies) {
      auto left = static_cast<std::size_t>(x.size(0) - begin);
      auto end = begin + static_cast<std::int64_t>(below(left + 1));
      parts.push_back(x.slice(0, begin, end));
      begin = end;
    }
    parts.push_back(x.slice(0, begin));
    return torch::cat(parallel_->parallel_apply(parts));
  }

  void pass() {
    torch::AutoGradMode with_gradients{below(8) != 0};
    open_pass it;
    it.x = make_batch();
    it.plain_x = it.x.clone();
    auto of_input = below(2) == 0;
    it.x.requires_grad_(of_input);
    it.plain_x.requires_grad_(of_input);
    it.y = run_copies(it.x);
    it.plain_y = plain_->forward(it.plain_x);
    CHECK(distance(it.plain_y, it.y) <= rounding);
    CHECK(it.y.requires_grad() == it.plain_y.requires_grad());
    if (!it.plain_y.requires_grad())
      return;
    open_.push_back(std::move(it));
    // A pass in training writes to what one in evaluation has read.
    if (!net_->is_training() || !net_->norm->is_training())
      close(open_.size() - 1);
  }

  /// A copy throws: none has the step's statistics, or all.
  void fail() {
    net_->burns = std::make_shared<std::atomic<bool>>(true);
    // Copies of the net have it when they are made anew, as now.
    open_.clear();
    both([](auto& net) { net.add_shift(net.shifts++); });
    CHECK_THROWS_AS(run_copies(make_batch()), std::runtime_error);
    equalize();
  }

  void close(std::size_t i) {
    auto it = std::move(open_[i]);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
    if (below(4) == 0)
      clear_gradients();
    if (it.x.requires_grad() && !it.is_frozen_otherwise && below(3) == 0)
      return differentiate_twice(it);
    auto dy = torch::randn_like(it.plain_y);
    it.y.backward(dy);
    it.plain_y.backward(dy);
    if (it.x.requires_grad())
      CHECK(distance(it.plain_x.grad(), it.x.grad()) <= rounding);
  }

  static Tensor gradient(const Tensor& y, const Tensor& x, const Tensor& dy) {
    return torch::autograd::grad({y}, {x}, {dy}, true, true)[0];
  }

  static void differentiate_twice(const open_pass& it) {
    auto dy = torch::randn_like(it.plain_y);
    auto dx = gradient(it.y, it.x, dy);
    auto plain_dx = gradient(it.plain_y, it.plain_x, dy);
    CHECK(distance(plain_dx, dx) <= rounding);
    CHECK(dx.requires_grad() == plain_dx.requires_grad());
    if (!plain_dx.requires_grad())
      return;
    auto weight = torch::randn_like(plain_dx);
    (dx * weight).sum().backward();
    (plain_dx * weight).sum().backward();
  }

  void clear_gradients() {
    both([none = below(2) == 0](auto& net) {
      if (!none)
        net.zero_grad();
      else
        for (auto& x : net.parameters())
          x.mutable_grad() = Tensor{};
    });
  }

  // -- both nets --------------------------------------------------------------

  /// The plain net gets what the copied one has.
  void equalize() {
    torch::NoGradGuard none;
    copy(net_->parameters(), plain_->parameters());
    copy(net_->buffers(), plain_->buffers());
  }

  static void copy(const std::vector<Tensor>& from, std::vector<Tensor> to) {
    REQUIRE(from.size() == to.size());
    for (std::size_t i = 0; i < from.size(); ++i)
      to[i].copy_(from[i]);
  }

  void check_nets() {
    auto mine = net_->parameters();
    auto plain = plain_->parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      CAPTURE(i);
      CHECK(torch::equal(plain[i], mine[i]));
      CHECK(plain[i].grad().defined() == mine[i].grad().defined());
      if (plain[i].grad().defined() && mine[i].grad().defined())
        CHECK(distance(plain[i].grad(), mine[i].grad()) <= rounding);
    }
    auto buffers = net_->buffers();
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      CAPTURE(i);
      CHECK(distance(plain_->buffers()[i], buffers[i]) <= rounding);
    }
  }

  std::mt19937 random_;
  std::shared_ptr<copied_net> net_ = std::make_shared<copied_net>();
  std::shared_ptr<plain_net> plain_ = std::make_shared<plain_net>();
  DataParallelWithCallback parallel_;
  std::vector<open_pass> open_;
};

} // namespace

TEST_CASE(
    "whatever of a net is changed between passes, its copies have the "
    "outputs, gradients and statistics of libtorch's on the whole batch") {
  actors env;
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    changing_run{env.system, seed}.run();
  }
}

} // namespace syncnorm::nn::test
