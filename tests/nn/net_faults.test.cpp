// Copies of a net, a graph and a thread each, of which any may be at fault.

#include "tests/nn/support.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::nn;
using namespace syncnorm::nn::test;
using namespace std::chrono_literals;

namespace {

using net_ptr = std::shared_ptr<torch::nn::SequentialImpl>;

template <class Norm>
net_ptr net_with() {
  torch::nn::Sequential net{
      torch::nn::Conv2d{torch::nn::Conv2dOptions(1, 3, 2)}, Norm{3},
      torch::nn::ReLU{}, torch::nn::Conv2d{torch::nn::Conv2dOptions(3, 2, 2)},
      Norm{2}};
  net->to(torch::kDouble);
  return net.ptr();
}

/// What a copy does in a step.
enum class deed { works, throws_first, throws_between, has_wrong_shape, stops };

class net_run {
public:
  net_run(caf::actor_system& system, std::uint32_t seed)
      : system_{system},
        random_{seed},
        is_patient_{random_() % 3 != 0},
        copies_{net_with<SynchronizedBatchNorm2d>()} {
    for (auto more = 1 + random_() % 4; more > 0; --more)
      copies_.push_back(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(
          copies_[0]->clone()));
    torch::NoGradGuard none;
    auto parameters = plain_->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      parameters[i].copy_(copies_[0]->parameters()[i]);
  }

  ~net_run() {
    desynchronize(copies_);
  }

  net_run(const net_run&) = delete;
  net_run& operator=(const net_run&) = delete;

  void run() {
    synchronize(system_, copies_, options());
    for (int step = 0; step < 6; ++step) {
      auto deeds = cast_deeds();
      make_batch();
      auto thrown =
          on_threads(copies_.size(), [&](std::size_t r) { play(r, deeds[r]); });
      auto all_work =
          std::ranges::count(deeds, deed::works) == std::ssize(deeds);
      if (all_work && is_patient_)
        CHECK_NOTHROW(rethrow_first(thrown));
      auto all_came = std::ranges::count(thrown, nullptr) == std::ssize(thrown);
      if (all_work && all_came)
        check_gradients();
      if (is_patient_)
        check_agree();
      if (!all_work || !all_came)
        synchronize(system_, copies_, options());
    }
  }

private:
  /// A deadline of an hour where whoever is at fault says so: that all come
  /// back without it.
  [[nodiscard]] SynchronizeOptions options() const {
    SynchronizeOptions result;
    result.deadline = is_patient_ ? caf::timespan{1h} : 100ms;
    return result;
  }

  std::vector<deed> cast_deeds() {
    std::vector<deed> result(copies_.size(), deed::works);
    if (random_() % 2 == 0)
      for (auto& x : result)
        if (random_() % 4 == 0)
          x = static_cast<deed>(1 + random_() % (is_patient_ ? 3 : 4));
    return result;
  }

  /// Parts of any size; of some copies none.
  void make_batch() {
    x_.clear();
    dy_.clear();
    for (const auto& net : copies_) {
      auto samples = static_cast<std::int64_t>(random_() % 3 + x_.empty());
      x_.push_back(torch::randn({samples, 1, 5, 5}, torch::kDouble));
      dy_.push_back(torch::randn({samples, 2, 3, 3}, torch::kDouble));
      net->zero_grad();
    }
  }

  void play(std::size_t r, deed what) {
    try {
      if (what == deed::throws_first)
        throw std::runtime_error{"a fault of the test's"};
      auto y = copies_[r]->forward(
          what == deed::has_wrong_shape ? x_[0].expand({-1, 2, 5, 5}) : x_[r]);
      if (what == deed::throws_between)
        throw std::runtime_error{"a fault of the test's"};
      if (what != deed::stops)
        y.backward(dy_[r]);
    } catch (const std::exception& x) {
      give_up(*copies_[r], x.what());
      throw;
    }
  }

  /// Added up, they are those of libtorch's net on the whole batch.
  void check_gradients() {
    plain_->zero_grad();
    plain_->forward(torch::cat(x_)).backward(torch::cat(dy_));
    auto expected = plain_->parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      auto sum = torch::zeros_like(expected[i]);
      for (const auto& net : copies_)
        if (auto part = net->parameters()[i].grad(); part.defined())
          sum += part;
      CHECK(torch::allclose(sum, expected[i].grad(), 1e-9, 1e-9));
    }
  }

  /// A round has run for all copies, or for none.
  void check_agree() {
    for (const auto& net : copies_)
      for (std::size_t i = 0; i < net->buffers().size(); ++i)
        CHECK(torch::equal(net->buffers()[i], copies_[0]->buffers()[i]));
  }

  caf::actor_system& system_;
  std::mt19937 random_;
  bool is_patient_;
  std::vector<net_ptr> copies_;
  net_ptr plain_ = net_with<torch::nn::BatchNorm2d>();
  std::vector<Tensor> x_;
  std::vector<Tensor> dy_;
};

} // namespace

TEST_CASE("whichever copies of a net throw, have the wrong shape or stop, all "
          "come back, in the same state, and have the gradients of the whole "
          "batch in the next step") {
  actors env;
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    net_run{env.system, seed}.run();
  }
}
