#include "tests/actors/fault_rounds.hpp"
#include "tests/actors/simulated_feeder.hpp"
#include "tests/actors/simulated_network.hpp"
#include "tests/actors/simulated_slaves.hpp"
#include "tests/actors/simulated_system.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

// Copies of a layer that are slave actors, which take their messages in any
// order. What they answer and learn is compared with float64's truth.

namespace {

constexpr double tolerance = 1e-9; // of float64, of sums over some batches
constexpr std::int64_t channels = 2;

class stage_run {
public:
  /// @param most_nodes 1: there is no network.
  stage_run(simulated_system& here, std::uint32_t seed, std::int64_t most_nodes)
      : here_{here},
        network_{here.system},
        feed_{.random = std::mt19937{seed}},
        options_{.name = "bn", .channels = channels, .type = dtype::float64} {
    options_.online = below(3) == 0;
    options_.fan_in = 2 + below(4);
    options_.deadline = 10s;
    if (below(3) == 0)
      options_.momentum = std::nullopt;
    nodes_ = 1 + below(most_nodes);
    auto copies = 1 + below(5);
    for (std::int64_t i = 0; i < copies; ++i) {
      replicas_.push_back(std::make_shared<batch_norm_replica>(options_));
      // Relays and the owner live where the master does.
      homes_.push_back(i == 0 ? 0 : choose_node());
    }
    learned_.resize(replicas_.size());
  }

  stage_run(const stage_run&) = delete;
  stage_run& operator=(const stage_run&) = delete;

  /// Passes, with faults or without, and the copies anew, some times.
  /// @returns what was wrong, or empty.
  std::string run() {
    for (int i = 0; i < 3; ++i) {
      make_feed();
      auto wrong = play();
      release();
      if (wrong.empty() && !slaves_->have_ended())
        wrong = "a copy is not given back";
      if (wrong.empty())
        wrong = what_is_wrong_with_values();
      if (!wrong.empty())
        return wrong + " of " + std::to_string(replicas_.size())
               + (options_.online ? ", online" : "");
      go_on_from_the_least();
    }
    return "";
  }

private:
  std::string play() {
    if (!spawn())
      return "not registered";
    if (network_.has_proxies() != are_on_several_nodes())
      return "not on the nodes that they are on";
    cuts_ = static_cast<int>(below(std::min(feed_.misdeeds, 2) + 1));
    auto faultless = feed_.misdeeds == 0;
    run_feeders();
    cuts_ = 0;
    return what_is_wrong_with_outcomes(faultless);
  }

  std::int64_t below(std::int64_t n) {
    return test::below(feed_.random, n);
  }

  std::size_t choose_node() {
    return static_cast<std::size_t>(below(nodes_));
  }

  // -- what copies are fed ----------------------------------------------------

  void make_feed() {
    auto batches = static_cast<std::size_t>(2 + below(5));
    feed_.window = static_cast<int>(1 + below(4));
    feed_.misdeeds = static_cast<int>(std::max<std::int64_t>(0, below(8) - 4));
    feed_.parts.clear();
    feed_.questions.clear();
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      auto& parts = feed_.parts.emplace_back();
      while (parts.size() < batches)
        // Some have none.
        parts.push_back(make_part(below(4) + (i == 0 ? 1 : 0)));
    }
    make_passes(batches);
  }

  simulated_part make_part(std::int64_t samples) {
    std::array<std::int64_t, 3> sizes{samples, channels, 1 + below(3)};
    tensor x{make_layout(options_.type, sizes)};
    auto dy = x;
    fill(x, feed_.random, 1, 2);
    fill(dy, feed_.random);
    return {std::move(x), std::move(dy)};
  }

  /// Backward passes come in any order, behind their forward passes.
  void make_passes(std::size_t batches) {
    feed_.passes.clear();
    std::vector<std::size_t> open;
    for (std::size_t k = 0; k < batches;) {
      if (options_.online || open.empty() || below(2) == 0) {
        feed_.passes.push_back({false, k});
        open.push_back(k++);
      } else {
        auto chosen = open.begin() + below(std::ssize(open));
        feed_.passes.push_back({true, *chosen});
        open.erase(chosen);
      }
    }
  }

  // -- the actors -------------------------------------------------------------

  bool spawn() {
    slaves_ = std::make_unique<simulated_slaves>(here_.system, options_);
    slaves_->spawn(replicas_, [this](const auto& x, std::int64_t copy) {
      return seen(x, copy);
    });
    feed_.slaves = slaves_->all();
    run_actors();
    return slaves_->are_answered() && slaves_->take_part();
  }

  void run_feeders() {
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      feeders_.push_back(here_.system.spawn<simulated_feeder>(feed_, i));
      detail::anon_send(feeders_.back(), go_atom_v);
    }
    run_actors();
  }

  [[nodiscard]] bool are_on_several_nodes() const {
    return std::ranges::any_of(homes_, [](auto x) { return x != 0; });
  }

  /// The handle that the node of a copy has.
  batch_norm_master_actor seen(const batch_norm_master_actor& x,
                               std::int64_t copy) {
    return caf::actor_cast<batch_norm_master_actor>(
        network_.seen(homes_[static_cast<std::size_t>(copy)], 0,
                      caf::actor_cast<caf::strong_actor_ptr>(x)));
  }

  /// In any order, until nobody waits any more.
  void run_actors() {
    do {
      while (step(here_, network_, feed_.random))
        if (cuts_ > 0 && below(40) == 0)
          cut();
    } while (network_.notice(feed_.random) || (is_waiting() && here_.ring()));
  }

  void cut() {
    --cuts_;
    auto one = choose_node();
    auto other = choose_node();
    if (one != other && !network_.is_cut({one, other}))
      network_.cut(one, other);
  }

  [[nodiscard]] bool is_waiting() const {
    for (const auto& parts : feed_.parts)
      for (const auto& part : parts)
        for (const auto* x : {&part.forward, &part.backward})
          if (x->is_asked && x->got.count == 0)
            return true;
    return std::ranges::any_of(feed_.questions,
                               [](const auto& x) { return x->count == 0; });
  }

  /// They give their states back.
  void release() {
    slaves_->end(feed_.random);
    for (const auto& x : feeders_)
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
    feed_.slaves.clear();
    feeders_.clear();
    run_actors();
    network_.mend();
    network_.close();
    here_.run_to_the_end();
  }

  // -- what must be so --------------------------------------------------------

  std::string what_is_wrong_with_outcomes(bool faultless) const {
    for (const auto& parts : feed_.parts)
      for (const auto& part : parts)
        for (const auto* x : {&part.forward, &part.backward})
          if (auto wrong = what_is_wrong_with(x->got, faultless);
              x->is_asked && !wrong.empty())
            return wrong;
    for (const auto& x : feed_.questions)
      if (auto wrong = what_is_wrong_with(*x, faultless); !wrong.empty())
        return "metrics: " + wrong;
    return "";
  }

  template <class T>
  static std::string what_is_wrong_with(const outcome<T>& got, bool faultless) {
    if (got.count != 1)
      return "not one answer";
    if (got.value)
      return "";
    if (faultless)
      return "an error without a fault: " + got.text();
    // CAF answers what somebody had not looked at before the end.
    return code_of(got.error) || got.error == caf::sec::request_receiver_down
               ? ""
               : "an error that tells nothing: " + got.text();
  }

  /// What a copy has answered, it has learned, and nothing else.
  std::string what_is_wrong_with_values() {
    gradients_.assign(replicas_.size(), {});
    for (std::size_t k = 0; k < feed_.parts[0].size(); ++k)
      if (auto wrong = what_is_wrong_with_batch(k); !wrong.empty())
        return wrong;
    for (std::size_t i = 0; i < replicas_.size(); ++i)
      if (auto wrong = what_is_wrong_with_state(i); !wrong.empty())
        return "copy " + std::to_string(i) + ": " + wrong;
    return "";
  }

  std::string what_is_wrong_with_batch(std::size_t k) {
    std::vector<tensor> xs;
    std::vector<tensor> dys;
    auto answered = false;
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      const auto& part = feed_.parts[i][k];
      xs.push_back(part.x);
      dys.push_back(part.dy);
      auto has_value = part.forward.got.value.has_value();
      answered = answered || has_value;
      learned_[i] += has_value ? 1 : 0;
    }
    if (!answered)
      return "";
    auto truth = truth_of(xs, dys);
    for (std::size_t i = 0; i < replicas_.size(); ++i)
      if (auto wrong = what_is_wrong_with_part(truth, i, feed_.parts[i][k]);
          !wrong.empty())
        return "batch " + std::to_string(k) + ", copy " + std::to_string(i)
               + ": " + wrong;
    return "";
  }

  /// Online, of all batches so far.
  reference truth_of(const std::vector<tensor>& xs,
                     const std::vector<tensor>& dys) {
    reference truth{.weight = {1, 1}, .bias = {0, 0}};
    if (options_.online) {
      seen_.insert(seen_.end(), xs.begin(), xs.end());
      truth.forward(seen_);
    } else {
      truth.forward(xs);
      truth.backward(xs, dys);
    }
    return truth;
  }

  std::string what_is_wrong_with_part(const reference& truth, std::size_t copy,
                                      const simulated_part& part) {
    std::string wrong;
    auto& gradients = gradients_[copy];
    reference::for_each({part.x}, [&](auto c, auto, auto i) {
      auto x = part.x.get(i);
      auto dy = part.dy.get(i);
      const auto& y = part.forward.got.value;
      const auto& dx = part.backward.got.value;
      if (y && !is_near(y->get(i), truth.y(c, x)))
        wrong = "y";
      if (!dx)
        return;
      if (!is_near(dx->get(i), truth.dx(c, x, dy)))
        wrong = "dx";
      gradients.weight[c] += dy * (x - truth.mean[c]) * truth.inv_std[c];
      gradients.bias[c] += dy;
    });
    return wrong;
  }

  std::string what_is_wrong_with_state(std::size_t copy) {
    auto& replica = *replicas_[copy];
    if (!options_.online && replica.num_batches_tracked() != learned_[copy])
      return "batches tracked";
    for (const auto& x : replica.gradients()) {
      auto got = std::get<std::span<double>>(x.values);
      const auto& expected =
          x.name == "weight" ? gradients_[copy].weight : gradients_[copy].bias;
      if (!std::ranges::equal(got, expected, is_near))
        return "gradient of " + x.name;
    }
    replica.zero_gradients();
    return "";
  }

  static bool is_near(double x, double y) {
    return std::abs(x - y) <= tolerance * (1 + std::abs(y));
  }

  /// As a stream's supervisor: what others have learned since is asked again.
  void go_on_from_the_least() {
    auto least = static_cast<std::size_t>(std::ranges::min_element(learned_)
                                          - learned_.begin());
    for (std::size_t i = 0; i < replicas_.size(); ++i)
      if (i != least)
        replicas_[i]->assign_state(*replicas_[least]);
    std::ranges::fill(learned_, learned_[least]);
    seen_.resize(options_.online ? static_cast<std::size_t>(learned_[least])
                                       * replicas_.size()
                                 : 0);
  }

  struct gradient_pair {
    std::array<double, channels> weight{};
    std::array<double, channels> bias{};
  };

  simulated_system& here_;
  simulated_network network_;
  simulated_feed feed_;
  batch_norm_options options_;
  std::int64_t nodes_ = 1;
  /// How many connections may still be lost.
  int cuts_ = 0;
  std::vector<std::shared_ptr<batch_norm_replica>> replicas_;
  /// On which node each one's slave lives.
  std::vector<std::size_t> homes_;
  std::unique_ptr<simulated_slaves> slaves_;
  std::vector<caf::actor> feeders_;
  /// Batches of each copy.
  std::vector<std::int64_t> learned_;
  std::vector<gradient_pair> gradients_;
  /// Online: every part of those.
  std::vector<tensor> seen_;
};

void check_stages(simulated_system& here, std::int64_t most_nodes) {
  check_seeds(schedules(), [&](std::uint32_t seed) {
    return stage_run{here, seed, most_nodes}.run();
  });
}

} // namespace

TEST_CASE_FIXTURE(simulated_system,
                  "in whatever order slave actors take their messages, each "
                  "pass has one answer, and a copy has learned what it has "
                  "answered and nothing else, whoever is at fault") {
  check_stages(*this, 1);
}

TEST_CASE_FIXTURE(simulated_system,
                  "so it is of slave actors on nodes that lose each other") {
  check_stages(*this, 3);
}
