// Copies that are made anew between passes: when they are, and what holds where
// that fails.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/data_parallel_with_callback.hpp"

#include <c10/core/CPUAllocator.h>
#include <torch/version.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <new>
#include <stdexcept>

namespace syncnorm::nn::test {

namespace {

/// Multiplies by a number that no parameter shows.
struct FactorImpl : torch::nn::Cloneable<FactorImpl> {
  double value = 1;

  explicit FactorImpl(double factor = 1) : value{factor} {}

  void reset() override {}

  Tensor forward(const Tensor& x) {
    return x * value;
  }
};

struct NotCloneableImpl : torch::nn::Module {};

/// A net that changes from pass to pass, and whose clone() may fail.
struct RestlessImpl : torch::nn::Cloneable<RestlessImpl> {
  /// How many clones succeed before one fails; negative: all do.
  static inline std::atomic<int> clones_left = -1;

  /// Whether there are an offset and a slope.
  bool has_line = false;
  torch::nn::Linear linear{nullptr};
  std::shared_ptr<FactorImpl> factor;
  SynchronizedBatchNorm1d norm{nullptr};
  Tensor offset;
  Tensor slope;

  RestlessImpl() {
    RestlessImpl::reset();
    to(torch::kDouble);
  }

  void reset() override {
    if (clones_left >= 0 && clones_left-- == 0)
      throw std::domain_error{"no more clones"};
    linear = register_module("linear", torch::nn::Linear(4, 3));
    factor = register_module("factor", std::make_shared<FactorImpl>());
    norm = register_module("norm", SynchronizedBatchNorm1d(3));
    if (has_line)
      add_line();
  }

  void add_line() {
    has_line = true;
    offset = register_buffer("offset", torch::full({3}, 2, torch::kDouble));
    slope = register_parameter("slope", torch::full({3}, 3, torch::kDouble));
  }

  Tensor forward(const Tensor& x) {
    return tail(norm->forward(head(x)));
  }

  /// The same with libtorch's batch norm, which leaves the buffers alone.
  Tensor plain_forward(const Tensor& x) {
    return tail(torch::batch_norm(
        head(x), norm->weight, norm->bias, norm->running_mean.clone(),
        norm->running_var.clone(), true, 0.1, 1e-5, false));
  }

private:
  Tensor head(const Tensor& x) {
    return factor->forward(linear->forward(x));
  }

  [[nodiscard]] Tensor tail(const Tensor& y) const {
    return has_line ? y * slope + offset : y;
  }
};
TORCH_MODULE(Restless);

/// What the next pass gives, forward and backward, is what libtorch gives on
/// the whole batch.
void check_next_pass(DataParallelWithCallback& parallel, Restless& net) {
  auto x = torch::randn({7, 4}, torch::kDouble).requires_grad_();
  auto dy = torch::randn({7, 3}, torch::kDouble);
  std::vector<Tensor> inputs{x, net->linear->weight, net->norm->weight};
  auto expected = net->plain_forward(x);
  auto y = parallel->forward(x);
  CHECK(distance(expected, y) <= 1e-10);
  auto expected_grads = torch::autograd::grad({expected}, inputs, {dy});
  auto grads = torch::autograd::grad({y}, inputs, {dy});
  for (std::size_t i = 0; i < grads.size(); ++i)
    CHECK(distance(expected_grads[i], grads[i]) <= 1e-10);
}

/// Makes the next pass make the copies anew.
void freeze(Restless& net) {
  net->linear->bias.set_requires_grad(false);
}

// Newer releases have allocators of another interface.
#if TORCH_VERSION_MAJOR < 2

/// While one of these lives, libtorch's memory on CPUs comes from here, and one
/// allocation fails when it has been told so.
class failing_allocator final : public c10::Allocator {
public:
  failing_allocator() {
    c10::SetCPUAllocator(this, 255);
  }
  failing_allocator(const failing_allocator&) = delete;
  failing_allocator& operator=(const failing_allocator&) = delete;
  ~failing_allocator() override {
    c10::SetCPUAllocator(real_, 255);
  }

  /// Whether the `n`th allocation of `f`, from 1 on, is there, and so fails.
  template <class F>
  bool fails_at(int n, F f) {
    left_ = n;
    try {
      f();
    } catch (const std::exception&) {
      CHECK(left_ <= 0);
    }
    return left_.exchange(0) <= 0;
  }

  c10::DataPtr allocate(std::size_t n) const override {
    if (left_ > 0 && left_-- == 1)
      throw std::bad_alloc{};
    return real_->allocate(n);
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return real_->raw_deleter();
  }

private:
  c10::Allocator* real_ = c10::GetCPUAllocator();
  mutable std::atomic<int> left_ = 0;
};

TEST_CASE("whichever allocation fails in a pass that makes copies anew, the "
          "next pass equals one device") {
  actors env;
  failing_allocator memory;
  auto failed = true;
  for (int n = 1; failed; ++n) {
    CAPTURE(n);
    Restless net;
    DataParallelWithCallback parallel{env.system, net, on_patient_cpus(3)};
    check_next_pass(parallel, net);
    freeze(net);
    auto x = torch::randn({7, 4}, torch::kDouble);
    failed = memory.fails_at(n, [&] { parallel->forward(x); });
    check_next_pass(parallel, net);
  }
}

#endif

TEST_CASE("a model that cannot be cloned any more is an error at every pass, "
          "and works again when it can") {
  actors env;
  Restless net;
  DataParallelWithCallback parallel{env.system, net, on_patient_cpus(2)};
  for (int clones : {0, 1}) {
    CAPTURE(clones);
    check_next_pass(parallel, net);
    freeze(net);
    auto x = torch::randn({7, 4}, torch::kDouble);
    for (int pass = 0; pass < 2; ++pass) {
      RestlessImpl::clones_left = clones;
      CHECK_THROWS_AS(parallel->forward(x), std::domain_error);
      CHECK(parallel->copies().size() == 2);
    }
    RestlessImpl::clones_left = -1;
    check_next_pass(parallel, net);
    net->linear->bias.set_requires_grad(true);
  }
  torch::nn::Sequential outer{net};
  DataParallelWithCallback of_outer{env.system, outer, on_patient_cpus(2)};
  auto x = torch::randn({7, 4}, torch::kDouble);
  auto y = of_outer->forward(x);
  net->register_module("other", std::make_shared<NotCloneableImpl>());
  for (int pass = 0; pass < 2; ++pass)
    CHECK_THROWS_WITH_AS(of_outer->forward(x),
                         doctest::Contains("that clone() can copy"), error);
  net->unregister_module("other");
  CHECK(torch::equal(y, of_outer->forward(x)));
}

TEST_CASE("a sub-module counts in the next pass that lies where the one lay "
          "that it replaces") {
  actors env;
  Restless net;
  alignas(FactorImpl) std::array<std::byte, sizeof(FactorImpl)> place;
  auto put = [&](double value) {
    net->factor.reset();
    net->unregister_module("factor");
    net->factor = net->register_module(
        "factor",
        std::shared_ptr<FactorImpl>{new (place.data()) FactorImpl{value},
                                    [](auto* x) { std::destroy_at(x); }});
    return net->factor.get();
  };
  auto* first = put(2);
  DataParallelWithCallback parallel{env.system, net, on_patient_cpus(2)};
  check_next_pass(parallel, net);
  // So small that epsilon counts.
  CHECK(put(0.001) == first);
  check_next_pass(parallel, net);
}

TEST_CASE("parameters and buffers that are registered between passes count in "
          "the next one") {
  actors env;
  Restless net;
  DataParallelWithCallback parallel{env.system, net, on_patient_cpus(2)};
  check_next_pass(parallel, net);
  net->add_line();
  check_next_pass(parallel, net);
  parallel->forward(torch::randn({7, 4}, torch::kDouble)).sum().backward();
  CHECK(net->slope.grad().defined());
}

TEST_CASE("a buffer that reset() does not register is refused in words") {
  actors env;
  Restless net;
  DataParallelWithCallback parallel{env.system, net, on_patient_cpus(2)};
  check_next_pass(parallel, net);
  net->register_buffer("extra", torch::zeros({1}));
  CHECK_THROWS_WITH_AS(parallel->forward(torch::randn({7, 4}, torch::kDouble)),
                       doctest::Contains("that clone() can copy, got "), error);
}

using modules = std::vector<std::shared_ptr<torch::nn::Module>>;

/// Copies that nobody runs any more are libtorch's layers, each for itself.
void check_plain(const modules& copies) {
  for (const auto& copy : copies) {
    auto& net = *copy->as<Restless>();
    CHECK_FALSE(net.norm->is_attached());
    auto x = torch::randn({5, 4}, torch::kDouble);
    auto expected = net.plain_forward(x);
    CHECK(distance(expected, net.forward(x)) <= 1e-10);
  }
}

TEST_CASE("copies that somebody holds when they are made anew, or their "
          "object ends, are plain modules, and the actor system ends") {
  modules held;
  for (auto how : {"made anew", "fewer", "ended"}) {
    CAPTURE(how);
    actors env;
    Restless net;
    {
      DataParallelWithCallback parallel{env.system, net, on_patient_cpus(3)};
      check_next_pass(parallel, net);
      held = parallel->copies();
      REQUIRE(held.size() == 3);
      if (how == std::string{"made anew"})
        freeze(net);
      if (how == std::string{"fewer"})
        parallel->options.devices({torch::kCPU, torch::kCPU});
      if (how != std::string{"ended"}) {
        check_next_pass(parallel, net);
        check_plain(held);
      }
    }
    check_plain(held);
  }
}

} // namespace

} // namespace syncnorm::nn::test
