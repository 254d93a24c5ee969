// What `clone()` makes of a model, and what its copies then are.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/replica_set.hpp"

#include <ATen/Parallel.h>

#include <array>
#include <atomic>
#include <thread>

namespace syncnorm::nn::test {

namespace {

using torch::nn::Module;

torch::nn::Conv2d convolution() {
  return torch::nn::Conv2d{torch::nn::Conv2dOptions(3, 4, 3).bias(false)};
}

torch::nn::Sequential named_model(const std::array<const char*, 3>& names) {
  torch::nn::Sequential model;
  model->push_back(names[0], convolution());
  model->push_back(names[1], SynchronizedBatchNorm2d{4});
  model->push_back(
      names[2],
      torch::nn::Conv2d{torch::nn::Conv2dOptions(4, 3, 1).bias(false)});
  model->to(torch::kDouble);
  return model;
}

/// The same layers in libtorch's own, without names.
torch::nn::Sequential plain_like(const torch::nn::Sequential& model) {
  torch::nn::Sequential plain{
      convolution(), torch::nn::BatchNorm2d{4},
      torch::nn::Conv2d{torch::nn::Conv2dOptions(4, 3, 1).bias(false)}};
  plain->to(torch::kDouble);
  torch::NoGradGuard no_grad;
  auto from = model->parameters();
  auto to = plain->parameters();
  for (std::size_t i = 0; i < from.size(); ++i)
    to[i].copy_(from[i]);
  return plain;
}

/// Runs both on the same batch and cotangent, and compares outputs, gradients
/// and running statistics.
template <class Parallel>
void check_equal(Parallel& parallel, torch::nn::Sequential& model,
                 torch::nn::Sequential& plain) {
  auto x = torch::randn({6, 3, 5, 5}, torch::kDouble);
  auto expected = plain->forward(x);
  auto got = parallel->forward(x);
  auto dy = torch::randn_like(expected);
  expected.backward(dy);
  got.backward(dy);
  CHECK(distance(expected, got) < 1e-10);
  auto from = plain->parameters();
  auto to = model->parameters();
  for (std::size_t i = 0; i < from.size(); ++i)
    CHECK(distance(from[i].grad(), to[i].grad()) < 1e-10);
  for (std::size_t i = 0; i < plain->buffers().size(); ++i)
    CHECK(distance(plain->buffers()[i], model->buffers()[i]) < 1e-10);
}

/// Its `reset()` registers what the constructor was given.
struct BorrowerImpl : torch::nn::Cloneable<BorrowerImpl> {
  explicit BorrowerImpl(torch::nn::Conv2d x) : conv{std::move(x)} {
    reset();
  }

  void reset() override {
    register_module("conv", conv);
    norm = register_module("norm", SynchronizedBatchNorm2d{4});
  }

  Tensor forward(const Tensor& x) {
    return norm->forward(conv->forward(x));
  }

  torch::nn::Conv2d conv;
  SynchronizedBatchNorm2d norm{nullptr};
};

TORCH_MODULE(Borrower);

/// The same with libtorch's norm alone, or one that all copies have.
struct NormBorrowerImpl : torch::nn::Cloneable<NormBorrowerImpl> {
  explicit NormBorrowerImpl(torch::nn::BatchNorm2d x) : norm{std::move(x)} {
    reset();
  }

  void reset() override {
    if (!of_copies.is_empty())
      norm = of_copies;
    register_module("norm", norm);
  }

  Tensor forward(const Tensor& x) {
    return norm->forward(x);
  }

  static inline torch::nn::BatchNorm2d of_copies{nullptr};
  torch::nn::BatchNorm2d norm;
};

TORCH_MODULE(NormBorrower);

/// As libtorch advises those who want a `Sequential` in another one.
struct StackImpl : torch::nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;

  Tensor forward(Tensor x) {
    return SequentialImpl::forward(std::move(x));
  }
};

TORCH_MODULE(Stack);

/// Adds how often it was called.
struct CounterImpl : torch::nn::Cloneable<CounterImpl> {
  CounterImpl() {
    reset();
  }

  void reset() override {
    calls = register_buffer("calls", torch::zeros({1}, torch::kDouble));
  }

  Tensor forward(const Tensor& x) {
    calls += 1;
    return x + calls;
  }

  Tensor calls;
};

TORCH_MODULE(Counter);

/// Notes with how many threads libtorch computes in it.
struct ThreadCountImpl : torch::nn::Cloneable<ThreadCountImpl> {
  ThreadCountImpl() {
    reset();
  }

  void reset() override {}

  Tensor forward(const Tensor& x) {
    auto y = x.exp();
    seen[x[0][0].item<int>()] = at::get_num_threads();
    return y;
  }

  static inline std::array<std::atomic<int>, 4> seen{};
};

TORCH_MODULE(ThreadCount);

/// Puts the number of libtorch's threads back.
class thread_number {
public:
  thread_number() = default;
  thread_number(const thread_number&) = delete;
  thread_number& operator=(const thread_number&) = delete;

  ~thread_number() {
    at::set_num_threads(before_);
  }

private:
  int before_ = at::get_num_threads();
};

} // namespace

TEST_CASE("a model of named parts equals one device, and its copies have the "
          "names") {
  actors env;
  // Where libtorch numbers by position, the last would have the first's name.
  for (const auto& names :
       {std::array{"conv", "norm", "last"}, std::array{"2", "1", "0"}}) {
    auto model = named_model(names);
    auto plain = plain_like(model);
    DataParallelWithCallback parallel{env.system, model, on_patient_cpus(3)};
    for (int pass = 0; pass < 2; ++pass)
      check_equal(parallel, model, plain);
    for (const auto& copy : parallel->copies())
      CHECK(copy->named_children().keys() == model->named_children().keys());
  }
}

TEST_CASE("a model whose clone shares a part that is trained is refused by the "
          "part's name, and stays as it was") {
  actors env;
  for (std::size_t n : {1, 2}) {
    Borrower model{convolution()};
    DataParallelWithCallback parallel{env.system, model, on_patient_cpus(n)};
    auto x = torch::randn({4, 3, 5, 5});
    std::string text;
    CHECK(code_of([&] { parallel->forward(x); }, &text)
          == errc::invalid_argument);
    CHECK(contains(text, "replica_set: model: conv.weight: expected clone() to "
                         "copy it"));
    CHECK(model->conv->weight.is_leaf());
    model->conv->forward(x).sum().backward();
    CHECK(model->conv->weight.grad().defined());
    // One that is frozen can be shared.
    model->conv->weight.set_requires_grad(false);
    CHECK(parallel->forward(x).requires_grad());
  }
}

TEST_CASE(
    "a part that is frozen and in evaluation from the beginning is shared "
    "with the copies, and stays so") {
  actors env;
  Borrower model{convolution()};
  model->conv->eval();
  for (auto& x : model->conv->parameters())
    x.set_requires_grad(false);
  auto weight = model->conv->weight.detach();
  DataParallelWithCallback parallel{env.system, model, on_patient_cpus(2)};
  // One sample is one copy's: they are made anew.
  for (int samples : {4, 1, 4}) {
    auto x = torch::randn({samples, 3, 5, 5});
    torch::nn::BatchNorm2d plain{4};
    CHECK(
        distance(plain->forward(model->conv->forward(x)), parallel->forward(x))
        <= tolerance(torch::kFloat));
    CHECK_FALSE(model->conv->weight.requires_grad());
    CHECK_FALSE(model->conv->is_training());
    CHECK(model->conv->weight.is_set_to(weight));
  }
}

TEST_CASE("a pass that is refused for a frozen part leaves it frozen, with its "
          "gradient and its flags") {
  actors env;
  torch::nn::BatchNorm2d norm{3};
  NormBorrower model{norm};
  model->norm->weight.mutable_grad() = torch::ones({3});
  model->norm->weight.set_requires_grad(false);
  auto weight = model->norm->weight.detach();
  DataParallelWithCallback parallel{env.system, model, on_patient_cpus(2)};
  CHECK_THROWS_AS(parallel->forward(torch::randn({4, 3, 5, 5})), error);
  CHECK_FALSE(model->norm->weight.requires_grad());
  CHECK(model->norm->bias.requires_grad());
  CHECK(model->norm->weight.is_set_to(weight));
  CHECK(torch::equal(model->norm->weight.grad(), torch::ones({3})));
  CHECK(model->norm->is_training());
}

TEST_CASE("a frozen part that the copies share with the model is refused in "
          "training, and keeps its memory in evaluation") {
  actors env;
  NormBorrower model{torch::nn::BatchNorm2d{3}};
  DataParallelWithCallback parallel{env.system, model, on_patient_cpus(2)};
  auto x = torch::randn({4, 3, 5, 5});
  auto refuses = [&](const char* text) {
    CHECK_THROWS_WITH_AS(parallel->forward(x), doctest::Contains(text), error);
  };
  refuses("norm.weight: expected clone() to copy it");
  for (auto& parameter : model->norm->parameters())
    parameter.set_requires_grad(false);
  refuses("norm.running_mean: expected clone() to copy it");
  model->eval();
  auto mean = model->norm->running_mean.detach();
  for (int pass = 0; pass < 2; ++pass)
    CHECK(distance(model->forward(x), parallel->forward(x)) <= 1e-6);
  CHECK(model->norm->running_mean.is_set_to(mean));
}

TEST_CASE("a part that copies share with each other is refused when it is "
          "trained") {
  actors env;
  NormBorrower model{torch::nn::BatchNorm2d{3}};
  auto part = torch::nn::BatchNorm2d{3};
  NormBorrowerImpl::of_copies = part;
  DataParallelWithCallback parallel{env.system, model, on_patient_cpus(2)};
  CHECK_THROWS_WITH_AS(parallel->forward(torch::randn({4, 3, 5, 5})),
                       doctest::Contains("norm.weight: expected clone()"),
                       error);
  NormBorrowerImpl::of_copies = nullptr;
}

TEST_CASE("a model that clone() copies as what it is derived from is refused "
          "in words") {
  actors env;
  auto x = torch::randn({4, 3, 5, 5});
  auto check = [&](auto model, const char* expected) {
    DataParallelWithCallback parallel{env.system, model, on_patient_cpus(2)};
    std::string text;
    CHECK(code_of([&] { parallel->forward(x); }, &text)
          == errc::invalid_argument);
    CHECK(contains(text, expected));
  };
  Stack stack{convolution()};
  check(stack, "StackImpl, got torch::nn::SequentialImpl");
  check(torch::nn::Sequential{stack},
        "replica_set: model: 0: expected clone() to make a ");
}

TEST_CASE("copies of no model, or for no device, are refused in words") {
  CHECK_THROWS_WITH_AS((replica_set{nullptr, cpu_times(1)}),
                       "replica_set: model: expected a module, got null",
                       error);
  CHECK_THROWS_WITH_AS((replica_set{SynchronizedBatchNorm2d{3}.ptr(), {}}),
                       "replica_set: devices: expected 1 or more, got none",
                       error);
}

/// Its clone() forgets one of what it has registered, or all.
struct ForgetfulImpl : torch::nn::Module {
  explicit ForgetfulImpl(std::string what) : forgets{std::move(what)} {}

  void add_all(const std::string& but) {
    if (but != "parameters")
      register_parameter("weight", torch::ones({1}));
    if (but != "buffers")
      register_buffer("mean", torch::ones({1}));
    if (but != "children")
      register_module("part", torch::nn::Linear{1, 1});
  }

  std::shared_ptr<torch::nn::Module>
  clone(const torch::optional<torch::Device>&) const override {
    if (forgets == "null")
      return nullptr;
    auto result = std::make_shared<ForgetfulImpl>(forgets);
    result->add_all(forgets);
    return result;
  }

  std::string forgets;
};

TEST_CASE("a model whose own clone() forgets a child, a parameter or a buffer "
          "is refused by it, and one that makes none as well") {
  auto refuses = [](const char* forgets, const std::string& text) {
    auto model = std::make_shared<ForgetfulImpl>(forgets);
    model->add_all("");
    CHECK_THROWS_WITH_AS((replica_set{model, cpu_times(1)}),
                         doctest::Contains(text.c_str()), error);
  };
  refuses("children", "the children [\"part\"], got []");
  refuses("parameters", "the parameters [\"weight\"], got []");
  refuses("buffers", "the buffers [\"mean\"], got []");
  refuses("null", "ForgetfulImpl, got null");
}

TEST_CASE("a buffer of a part that the model has twice is one for each copy") {
  actors env;
  Counter counter;
  torch::nn::Sequential model{counter, counter};
  DataParallelWithCallback parallel{env.system, model, on_patient_cpus(2)};
  auto x = torch::zeros({2, 1}, torch::kDouble);
  for (int pass = 0; pass < 2; ++pass) {
    auto before = counter->calls.item<double>();
    auto y = parallel->forward(x);
    CHECK(torch::equal(y, torch::full_like(x, 2 * before + 3)));
    CHECK(counter->calls.item<double>() == before + 2);
  }
}

TEST_CASE("clones of a Sequential that lose their names, or with a layer that "
          "stands twice, synchronize with each other, but not with the model") {
  actors env;
  SynchronizedBatchNorm1d norm{2};
  torch::nn::Sequential twice{norm, torch::nn::Linear{2, 2}, norm};
  for (const auto& model :
       {named_model({"first", "norm", "last"}).ptr(), twice.ptr()}) {
    auto clone = model->clone();
    // libtorch 2 keeps the names since 2.15, if not before.
    auto is_alike =
        model != twice.ptr()
        && clone->named_children().keys() == model->named_children().keys();
    std::string text;
    CHECK(code_of(
              [&] {
                synchronize(env.system, {model, clone});
              },
              &text)
          == (is_alike ? errc::none : errc::invalid_argument));
    CHECK(contains(text, is_alike ? "" : "copy 1 differs from copy 0"));
    synchronize(env.system, {model->clone(), model->clone()});
  }
}

TEST_CASE("copies compute with their share of libtorch's threads, also in "
          "later passes and when the caller has another number") {
  actors env;
  thread_number restored;
  DataParallelWithCallback parallel{env.system, ThreadCount{},
                                    on_patient_cpus(4)};
  auto x = torch::arange(4, torch::kFloat).view({4, 1}).repeat({1, 100'000});
  for (auto [all, share] :
       {std::pair{8, 2}, std::pair{8, 2}, std::pair{12, 3}, std::pair{2, 1}}) {
    at::set_num_threads(all);
    parallel->forward(x);
    for (const auto& seen : ThreadCountImpl::seen)
      CHECK(seen == share);
    CHECK(at::get_num_threads() == all);
    // A thread that begins later has the caller's number.
    int later = 0;
    std::thread{[&] { later = at::get_num_threads(); }}.join();
    CHECK(later == all);
  }
}

} // namespace syncnorm::nn::test
