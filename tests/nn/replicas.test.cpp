// Copies that own their graph and their thread: exchange in backward by
// messages.

#include "tests/nn/support.hpp"

#include "syncnorm/nn/synchronize_apart.hpp"

namespace syncnorm::nn::test {

namespace {

template <class Layer>
std::vector<Layer> copies_of(std::size_t n, std::int64_t channels,
                             torch::ScalarType type) {
  std::vector<Layer> result;
  for (std::size_t i = 0; i < n; ++i) {
    result.emplace_back(channels);
    result.back()->to(type);
  }
  return result;
}

std::vector<SynchronizedBatchNorm2d> make_copies(std::size_t n,
                                                 std::int64_t channels) {
  return copies_of<SynchronizedBatchNorm2d>(n, channels, torch::kDouble);
}

template <class Layer>
std::vector<std::shared_ptr<torch::nn::Module>>
modules_of(const std::vector<Layer>& copies) {
  std::vector<std::shared_ptr<torch::nn::Module>> result;
  for (const auto& copy : copies)
    result.push_back(copy.ptr());
  return result;
}

/// Four copies on a quarter of a batch each against libtorch's layer on the
/// whole, in training and then in evaluation.
template <class Layer, class Plain>
class four_and_one {
public:
  four_and_one(std::vector<std::int64_t> sizes, torch::ScalarType type)
      : type_{type},
        sizes_{std::move(sizes)},
        copies_{copies_of<Layer>(4, sizes_[1], of_parameters())},
        plain_{sizes_[1]} {
    plain_->to(of_parameters());
    synchronize(env_.system, modules_of(copies_));
  }

  void check() {
    for (int step = 0; step < 2; ++step)
      train();
    evaluate();
  }

private:
  [[nodiscard]] torch::ScalarType of_parameters() const {
    return type_ == torch::kDouble ? torch::kDouble : torch::kFloat;
  }

  [[nodiscard]] Tensor random() const {
    return (torch::randn(sizes_, torch::kDouble) * 2 + 3).to(type_);
  }

  void run_parts(const Tensor& x, const Tensor* dy) {
    y_.assign(4, {});
    dx_.assign(4, {});
    auto parts = x.chunk(4);
    rethrow_first(on_threads(4, [&](std::size_t r) {
      auto part = parts[r].clone().requires_grad_();
      y_[r] = copies_[r]->forward(part);
      if (dy == nullptr)
        return;
      y_[r].backward(dy->chunk(4)[r]);
      dx_[r] = part.grad();
    }));
  }

  void train() {
    auto x = random();
    auto dy = random();
    auto whole = x.to(of_parameters()).detach().clone().requires_grad_();
    auto expected = plain_->forward(whole);
    expected.backward(dy.to(of_parameters()));
    run_parts(x, &dy);
    CHECK(distance(expected, torch::cat(y_)) <= tolerance(type_));
    CHECK(distance(whole.grad(), torch::cat(dx_)) <= tolerance(type_));
    auto weight_grad = torch::zeros_like(plain_->weight);
    auto bias_grad = torch::zeros_like(plain_->bias);
    for (auto& copy : copies_) {
      weight_grad += copy->weight.grad();
      bias_grad += copy->bias.grad();
      check_state(copy);
    }
    CHECK(distance(plain_->weight.grad(), weight_grad)
          <= tolerance(of_parameters()));
    CHECK(distance(plain_->bias.grad(), bias_grad)
          <= tolerance(of_parameters()));
  }

  void check_state(Layer& copy) {
    auto near = tolerance(of_parameters());
    CHECK(distance(plain_->running_mean, copy->running_mean) <= near);
    CHECK(distance(plain_->running_var, copy->running_var) <= near);
    CHECK(torch::equal(plain_->num_batches_tracked, copy->num_batches_tracked));
  }

  void evaluate() {
    auto sent = copies_[1]->messages_sent();
    // A round forward and one backward, twice.
    CHECK(sent == 4);
    plain_->eval();
    for (auto& copy : copies_)
      copy->eval();
    auto x = random();
    run_parts(x, nullptr);
    CHECK(distance(plain_->forward(x.to(of_parameters())), torch::cat(y_))
          <= tolerance(type_));
    CHECK(copies_[1]->messages_sent() == sent);
  }

  actors env_;
  torch::ScalarType type_;
  std::vector<std::int64_t> sizes_;
  std::vector<Layer> copies_;
  Plain plain_;
  std::vector<Tensor> y_;
  std::vector<Tensor> dx_;
};

TEST_CASE("four CPU copies with graphs and threads of their own finish and "
          "equal one device, in all dtypes; evaluation sends no message") {
  using namespace torch::nn;
  for (auto type :
       {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16}) {
    CAPTURE(type);
    four_and_one<SynchronizedBatchNorm1d, BatchNorm1d>{{16, 10}, type}.check();
    four_and_one<SynchronizedBatchNorm2d, BatchNorm2d>{{16, 10, 6, 5}, type}
        .check();
    four_and_one<SynchronizedBatchNorm3d, BatchNorm3d>{{24, 5, 3, 4, 2}, type}
        .check();
  }
  // One sample a copy.
  four_and_one<SynchronizedBatchNorm1d, BatchNorm1d>{{4, 3}, torch::kDouble}
      .check();
}

TEST_CASE("copies without running statistics go by their own batches in "
          "evaluation, and send no message") {
  actors env;
  std::vector<SynchronizedBatchNorm2d> copies;
  for (int r = 0; r < 2; ++r)
    copies.emplace_back(
        SynchronizedBatchNorm2dOptions(3).track_running_stats(false));
  synchronize(env.system, modules_of(copies), patient());
  rethrow_first(on_threads(2, [&](std::size_t r) {
    copies[r]->eval();
    auto x = torch::randn({4, 3, 2, 2});
    torch::nn::BatchNorm2d plain{3};
    CHECK(distance(plain->forward(x), copies[r]->forward(x)) <= 1e-4);
    CHECK(copies[r]->messages_sent() == 0);
  }));
}

TEST_CASE("groups of two among four copies with threads of their own share "
          "statistics with each other only") {
  actors env;
  auto copies = make_copies(4, 5);
  SynchronizeOptions groups;
  groups.group_size = 2;
  synchronize(env.system, modules_of(copies), groups);
  auto x = torch::randn({8, 5, 3, 4}, torch::kDouble).chunk(4);
  std::vector<Tensor> y(4);
  rethrow_first(on_threads(
      4, [&](std::size_t r) { y[r] = copies[r]->forward(x[r] + 1); }));
  for (std::size_t g = 0; g < 4; g += 2) {
    torch::nn::BatchNorm2d plain{5};
    plain->to(torch::kDouble);
    auto expected = plain->forward(torch::cat({x[g], x[g + 1]}) + 1);
    CHECK(distance(expected, torch::cat({y[g], y[g + 1]})) <= 1e-10);
    CHECK(distance(plain->running_var, copies[g + 1]->running_var) <= 1e-10);
  }
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

/// A training step of copies with threads of their own against libtorch's layer
/// on the whole batch.
void check_step(std::vector<SynchronizedBatchNorm2d>& copies) {
  auto n = static_cast<std::int64_t>(copies.size());
  auto x = torch::randn({2 * n, 5, 3, 4}, torch::kDouble);
  torch::nn::BatchNorm2d plain{5};
  plain->to(torch::kDouble);
  auto whole = x.clone().requires_grad_();
  auto expected = plain->forward(whole);
  expected.pow(3).sum().backward();
  std::vector<Tensor> y(copies.size());
  std::vector<Tensor> dx(copies.size());
  rethrow_first(on_threads(copies.size(), [&](std::size_t r) {
    auto part = x.chunk(n)[r].clone().requires_grad_();
    y[r] = copies[r]->forward(part);
    y[r].pow(3).sum().backward();
    dx[r] = part.grad();
  }));
  CHECK(distance(expected, torch::cat(y)) <= 1e-10);
  CHECK(distance(whole.grad(), torch::cat(dx)) <= 1e-10);
}

TEST_CASE("copies that follow again after passes equal one device forward and "
          "backward, with the leader where it was") {
  actors env;
  auto copies = make_copies(3, 5);
  auto masters = lead_copies(env.system, copies[0].ptr(), 3);
  for (int generation = 0; generation < 3; ++generation) {
    CAPTURE(generation);
    for (std::size_t r = 1; r < 3; ++r) {
      // Another one, as after a failure.
      copies[r] = make_copies(1, 5)[0];
      follow_copies(env.system, copies[r].ptr(), static_cast<std::int64_t>(r),
                    masters);
    }
    check_step(copies);
    check_step(copies);
  }
}

TEST_CASE("a copy that leads goes on after a failure, when the others have "
          "followed again") {
  actors env;
  auto copies = make_copies(2, 5);
  auto masters = lead_copies(env.system, copies[0].ptr(), 2, patient());
  auto follow = [&] { follow_copies(env.system, copies[1].ptr(), 1, masters); };
  follow();
  give_up(*copies[1], "out of data");
  CHECK_THROWS_WITH_AS(
      copies[0]->forward(torch::randn({2, 5, 3, 4}, torch::kDouble)),
      doctest::Contains("out of data"), error);
  follow();
  check_step(copies);
}

TEST_CASE("a copy that follows again before any pass, or another one in its "
          "place, takes the seat that was left, and none that is taken") {
  actors env;
  auto copies = make_copies(2, 5);
  auto masters = lead_copies(env.system, copies[0].ptr(), 2);
  auto follow = [&](SynchronizedBatchNorm2d& copy) {
    follow_copies(env.system, copy.ptr(), 1, masters);
  };
  for (int i = 0; i < 20; ++i) {
    follow(copies[1]);
    follow(copies[1]);
    desynchronize({copies[1].ptr()});
    follow(copies[1]);
    copies[1] = make_copies(1, 5)[0];
  }
  follow(copies[1]);
  auto third = make_copies(1, 5)[0];
  CHECK_THROWS_WITH_AS(follow(third),
                       doctest::Contains("replica 1 is registered already"),
                       error);
  check_step(copies);
}

TEST_CASE("a copy that leads goes forward before the others follow: its round "
          "waits for them") {
  actors env;
  auto copies = make_copies(2, 5);
  auto x = torch::randn({4, 5, 3, 4}, torch::kDouble);
  auto masters = lead_copies(env.system, copies[0].ptr(), 2);
  rethrow_first(on_threads(2, [&](std::size_t r) {
    if (r == 1) {
      while (copies[0]->messages_sent() == 0)
        std::this_thread::yield();
      follow_copies(env.system, copies[1].ptr(), 1, masters);
    }
    copies[r]->forward(x.chunk(2)[r]);
  }));
  CHECK(distance(copies[1]->running_mean, 0.1 * x.mean({0, 2, 3})) <= 1e-12);
}

TEST_CASE("copies whose epsilon, its mode or momentum differ are refused, and "
          "work when they are the same again") {
  actors env;
  auto copies = make_copies(2, 5);
  auto check_refused = [&](auto change) {
    change(copies[1]->options);
    synchronize(env.system, modules_of(copies));
    CHECK_THROWS_WITH_AS(check_step(copies),
                         doctest::Contains("the same options"), error);
    copies[1]->options = copies[0]->options;
    synchronize(env.system, modules_of(copies));
    check_step(copies);
  };
  check_refused([](auto& options) { options.eps(1e-3); });
  check_refused([](auto& options) { options.momentum(0.3); });
  check_refused([](auto& options) { options.eps_mode(eps_mode::clamp); });
}

/// Refused in either order, by the texts of both.
void check_differ(const SynchronizedBatchNormOptions& one,
                  const std::string& text,
                  const SynchronizedBatchNormOptions& other,
                  const std::string& other_text) {
  actors env;
  torch::nn::Sequential a{SynchronizedBatchNorm2d{one}};
  torch::nn::Sequential b{SynchronizedBatchNorm2d{other}};
  auto check = [&](const auto& copies, const std::string& expected,
                   const std::string& found) {
    auto type = "syncnorm::nn::SynchronizedBatchNorm2dImpl";
    auto whole = "execute_replication_callbacks: copy 1 differs from copy 0 at "
                 "0: expected "
                 + (type + expected) + ", found " + (type + found);
    CHECK_THROWS_WITH_AS(synchronize(env.system, copies), whole.c_str(), error);
  };
  check(std::vector{a.ptr(), b.ptr()}, text, other_text);
  check(std::vector{b.ptr(), a.ptr()}, other_text, text);
}

TEST_CASE("copies whose layers differ in channels, weights or running "
          "statistics are refused, by the layer, before any call") {
  SynchronizedBatchNormOptions usual{5};
  auto untracked = SynchronizedBatchNormOptions{5}.track_running_stats(false);
  auto bare = SynchronizedBatchNormOptions{5}.affine(false);
  check_differ(usual, "(5)", {6}, "(6)");
  check_differ(usual, "(5)", untracked, "(5, track_running_stats=false)");
  check_differ(bare, "(5, affine=false)", untracked.affine(false),
               "(5, affine=false, track_running_stats=false)");
}

TEST_CASE("a copy with running statistics that follows one without is refused "
          "by its first call, and writes nothing") {
  actors env;
  SynchronizedBatchNorm2d leader{
      SynchronizedBatchNorm2dOptions(2).track_running_stats(false)};
  SynchronizedBatchNorm2d follower{2};
  auto masters = lead_copies(env.system, leader.ptr(), 2, patient());
  follow_copies(env.system, follower.ptr(), 1, masters);
  auto call = [&] {
    return on_threads(2, [&](std::size_t r) {
      (r == 0 ? leader : follower)->forward(torch::randn({3, 2, 2, 2}));
    });
  };
  auto has = [](const std::exception_ptr& x, const char* text) {
    INFO(text_of(x));
    CHECK(text_of(x).find(text) != std::string::npos);
  };
  auto text = "SynchronizedBatchNorm2d: running_mean: expected none, as copy 0 "
              "tracks no statistics, got one";
  has(call()[1], text);
  CHECK(follower->num_batches_tracked.item<std::int64_t>() == 0);
  has(call()[0], text);
}

TEST_CASE("a round of empty batches changes nothing of a copy with running "
          "statistics that follows one without") {
  actors env;
  SynchronizedBatchNorm2d leader{
      SynchronizedBatchNorm2dOptions(2).track_running_stats(false)};
  SynchronizedBatchNorm2d follower{2};
  follower->num_batches_tracked.fill_(5);
  auto masters = lead_copies(env.system, leader.ptr(), 2, patient());
  follow_copies(env.system, follower.ptr(), 1, masters);
  rethrow_first(on_threads(2, [&](std::size_t r) {
    (r == 0 ? leader : follower)->forward(torch::zeros({0, 2, 2, 2}));
  }));
  CHECK(follower->num_batches_tracked.item<std::int64_t>() == 5);
  CHECK(torch::equal(follower->running_mean, torch::zeros({2})));
}

TEST_CASE("a copy whose layers nobody leads is refused by the layer") {
  actors env;
  auto modules = modules_of(make_copies(2, 5));
  torch::nn::Sequential outer{SynchronizedBatchNorm2d{5}};
  auto masters = lead_copies(env.system, modules[0], 2);
  CHECK_THROWS_WITH_AS(follow_copies(env.system, outer.ptr(), 1, masters),
                       doctest::Contains("layer \"0\": expected its master"),
                       error);
  CHECK_THROWS_WITH_AS(follow_copies(env.system, modules[1], 0, masters),
                       doctest::Contains("copy_id: expected 1 or more, got 0"),
                       error);
  CHECK_THROWS_WITH_AS((void) lead_copies(env.system, modules[0], 0),
                       doctest::Contains("copies: expected 1 or more, got 0"),
                       error);
  SynchronizeOptions groups;
  groups.group_size = 2;
  CHECK_THROWS_WITH_AS((void) lead_copies(env.system, modules[0], 2, groups),
                       doctest::Contains("group_size: expected 0, got 2"),
                       error);
  // Who is alone has no master.
  auto none = lead_copies(env.system, modules[0], 1);
  CHECK_THROWS_WITH_AS(follow_copies(env.system, modules[1], 1, none),
                       doctest::Contains("layer \"\": expected its master"),
                       error);
}

/// What copies with threads of their own derive from a nonlinear loss.
struct derivatives {
  /// Of the loss: by x, weight and bias of each copy.
  std::vector<Tensor> first;
  /// Of the first ones along a direction.
  std::vector<Tensor> second;
};

using directions = std::vector<Tensor>;

derivatives differentiate(std::vector<SynchronizedBatchNorm2d>& copies,
                          const std::vector<Tensor>& x,
                          const directions* along) {
  derivatives result;
  result.first.resize(3 * copies.size());
  result.second.resize(3 * copies.size());
  rethrow_first(on_threads(copies.size(), [&](std::size_t r) {
    std::vector<Tensor> wanted{x[r], copies[r]->weight, copies[r]->bias};
    auto y = copies[r]->forward(x[r]);
    auto loss = (y.sin() * static_cast<double>(r + 1)).sum();
    auto first = torch::autograd::grad({loss}, wanted, {}, along != nullptr,
                                       along != nullptr);
    std::copy(first.begin(), first.end(),
              result.first.begin() + 3 * static_cast<std::ptrdiff_t>(r));
    if (along == nullptr)
      return;
    auto sum = torch::zeros({}, torch::kDouble);
    for (std::size_t i = 0; i < 3; ++i)
      sum = sum + (first[i] * (*along)[3 * r + i]).sum();
    auto second = torch::autograd::grad({sum}, wanted);
    std::copy(second.begin(), second.end(),
              result.second.begin() + 3 * static_cast<std::ptrdiff_t>(r));
  }));
  return result;
}

void check_second_derivatives(eps_mode mode) {
  actors env;
  auto copies = make_copies(3, 3);
  synchronize(env.system, modules_of(copies));
  std::vector<Tensor> at;
  std::vector<Tensor> x;
  for (std::size_t r = 0; r < 3; ++r) {
    copies[r]->options.eps(0.3).eps_mode(mode);
    x.push_back(torch::randn({static_cast<std::int64_t>(r) + 1, 3, 2, 2},
                             torch::kDouble));
    // One channel under epsilon, so that clamping happens.
    x[r].select(1, 2) *= 0.1;
    x[r].requires_grad_();
    at.insert(at.end(), {x[r], copies[r]->weight, copies[r]->bias});
  }
  directions along;
  // Copies have the same parameters: these go the same way.
  for (std::size_t i = 0; i < at.size(); ++i)
    along.push_back(i < 3 || i % 3 == 0 ? torch::randn_like(at[i])
                                        : along[i % 3]);
  auto exact = differentiate(copies, x, &along);
  auto shifted = [&](double h) {
    torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < at.size(); ++i)
      at[i] += along[i] * h;
    auto result = differentiate(copies, x, nullptr).first;
    for (std::size_t i = 0; i < at.size(); ++i)
      at[i] -= along[i] * h;
    return result;
  };
  // As in data_parallel.test.cpp: the error of the difference is about 1e-9.
  auto h = 1e-5;
  auto ahead = shifted(h);
  auto behind = shifted(-h);
  auto here = differentiate(copies, x, nullptr).first;
  for (std::size_t i = 0; i < at.size(); ++i) {
    CHECK(distance(here[i], exact.first[i]) <= 1e-10);
    CHECK(distance((ahead[i] - behind[i]) / (2 * h), exact.second[i]) <= 1e-6);
  }
}

TEST_CASE("second derivatives of copies with graphs and threads of their own "
          "equal finite differences of the first") {
  check_second_derivatives(eps_mode::plus);
  check_second_derivatives(eps_mode::clamp);
}

/// Has no gradient, but a node in the graph.
struct without_gradient : torch::autograd::Function<without_gradient> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) {
    return x.clone();
  }

  static torch::autograd::tensor_list
  backward(torch::autograd::AutogradContext*,
           const torch::autograd::tensor_list&) {
    return {Tensor{}};
  }
};

TEST_CASE("a copy whose first derivatives have no gradient takes part in the "
          "second ones of the others") {
  actors env;
  auto copies = make_copies(2, 3);
  synchronize(env.system, modules_of(copies), patient());
  std::vector<Tensor> x, second(2);
  for (int r = 0; r < 2; ++r)
    x.push_back(torch::randn({3, 3, 2, 2}, torch::kDouble).requires_grad_());
  torch::nn::BatchNorm2d plain{3};
  plain->to(torch::kDouble);
  auto first = [](auto& layer, const Tensor& of) {
    auto y = layer->forward(of);
    return torch::autograd::grad({y.sin().sum()}, {of}, {}, true, true)[0];
  };
  auto whole = torch::cat(x).detach().requires_grad_();
  first(plain, whole).narrow(0, 0, 3).square().sum().backward();
  rethrow_first(on_threads(2, [&](std::size_t r) {
    auto dx = first(copies[r], x[r]);
    auto of_loss = r == 0 ? dx : without_gradient::apply(dx);
    second[r] = torch::autograd::grad({of_loss.square().sum()}, {x[r]})[0];
  }));
  CHECK(distance(whole.grad(), torch::cat(second)) <= 1e-10);
}

TEST_CASE("a layer that each copy calls twice in one pass, in branches, equals "
          "one device that does") {
  actors env;
  auto copies = make_copies(3, 5);
  synchronize(env.system, modules_of(copies));
  torch::nn::BatchNorm2d plain{torch::nn::BatchNorm2dOptions(5)};
  plain->to(torch::kDouble);
  auto run = [](auto& layer, const Tensor& x) {
    return layer->forward(x) + layer->forward(x * x).sin();
  };
  auto x = torch::randn({6, 5, 3, 4}, torch::kDouble).requires_grad_();
  auto expected = run(plain, x);
  expected.square().sum().backward();
  std::vector<Tensor> y(3);
  std::vector<Tensor> parts;
  for (auto& part : x.detach().chunk(3))
    parts.push_back(part.clone().requires_grad_());
  rethrow_first(on_threads(3, [&](std::size_t r) {
    y[r] = run(copies[r], parts[r]);
    y[r].square().sum().backward();
  }));
  std::vector<Tensor> dx;
  for (std::size_t r = 0; r < 3; ++r) {
    dx.push_back(parts[r].grad());
    CHECK(distance(plain->running_var, copies[r]->running_var) <= 1e-10);
    CHECK(copies[r]->num_batches_tracked.item<double>() == 2);
  }
  CHECK(distance(expected, torch::cat(y)) <= 1e-10);
  CHECK(distance(x.grad(), torch::cat(dx)) <= 1e-10);
}

std::string text_of_failure(const std::vector<std::exception_ptr>& thrown) {
  std::string result;
  for (const auto& x : thrown)
    result += text_of(x) + "\n";
  return result;
}

TEST_CASE("a copy that passes backward through a layer's calls in another "
          "order is named, and the copies work again after synchronize") {
  actors env;
  auto copies = make_copies(3, 5);
  synchronize(env.system, modules_of(copies));
  auto thrown = on_threads(3, [&](std::size_t r) {
    auto x = torch::randn({2, 5, 3, 4}, torch::kDouble).requires_grad_();
    std::vector<Tensor> y;
    for (int i = 0; i < 2; ++i)
      y.push_back(copies[r]->forward(x).square().sum());
    y[r == 1 ? 1 : 0].backward();
    y[r == 1 ? 0 : 1].backward();
  });
  for (const auto& x : thrown)
    CHECK(x);
  CHECK_MESSAGE(text_of_failure(thrown).find(
                    "replica 1 sent sums of call 2 of the layer, replica 0 of "
                    "call 1")
                    != std::string::npos,
                text_of_failure(thrown));
  synchronize(env.system, modules_of(copies));
  results_of(copies);
}

TEST_CASE(
    "a copy that derives another call of a layer twice than the others is "
    "named") {
  actors env;
  auto copies = make_copies(2, 5);
  synchronize(env.system, modules_of(copies), patient());
  auto thrown = on_threads(2, [&](std::size_t r) {
    std::vector<Tensor> x, first;
    for (int i = 0; i < 2; ++i) {
      x.push_back(torch::randn({2, 5, 3, 4}, torch::kDouble).requires_grad_());
      auto y = copies[r]->forward(x[i]);
      // A constant, through which no second derivative goes back.
      first.push_back(torch::autograd::grad({y}, {x[i]}, {torch::randn_like(y)},
                                            true, true)[0]);
    }
    std::ignore = torch::autograd::grad({first[r].square().sum()}, {x[r]});
  });
  for (const auto& x : thrown)
    CHECK_MESSAGE(text_of(x).find("sent sums of call ") != std::string::npos,
                  text_of(x));
}

TEST_CASE("copies that call two layers in different orders end by the deadline "
          "with an error that names the layer and who is missing") {
  actors env;
  auto one = make_copies(2, 5);
  auto two = make_copies(2, 5);
  SynchronizeOptions options;
  options.deadline = std::chrono::milliseconds{50};
  options.prefix = "one ";
  synchronize(env.system, modules_of(one), options);
  options.prefix = "two ";
  synchronize(env.system, modules_of(two), options);
  auto thrown = on_threads(2, [&](std::size_t r) {
    auto x = torch::randn({2, 5, 3, 4}, torch::kDouble);
    (r == 0 ? one : two)[r]->forward(x);
    (r == 0 ? two : one)[r]->forward(x);
  });
  for (std::size_t r = 0; r < 2; ++r) {
    auto text = text_of(thrown[r]);
    CAPTURE(text);
    CHECK(text.find(r == 0 ? "one " : "two ") != std::string::npos);
    CHECK(text.find("waited 0.05 s for replica " + std::to_string(1 - r))
          != std::string::npos);
  }
}

} // namespace

} // namespace syncnorm::nn::test
