// Copies of two layers, one behind the other, of which any may be at fault.

#include "tests/actors/batch_norm_reference.hpp"
#include "tests/actors/layer_copies.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

namespace {

constexpr int runs = 100;

/// What a copy does in a step.
enum class deed { works, throws, has_wrong_shape, returns, skips_a_call };

struct part {
  deed what = deed::works;
  /// In the place of which of its four calls.
  std::size_t call = 0;
};

class layer_run {
public:
  layer_run(caf::actor_system& system, std::uint32_t seed)
      : random_{seed},
        copies_{2 + random_() % 7},
        is_patient_{random_() % 3 != 0},
        fan_in_{random_() % 2 == 0 ? 2 : 1000},
        first_{make_copies(system, options_of("first"), copies_)},
        second_{make_copies(system, options_of("second"), copies_)} {}

  void run() {
    replicate();
    for (int step = 0; step < 6; ++step) {
      auto parts = cast_parts();
      auto thrown =
          on_threads(copies_, [&](std::size_t r) { play(r, parts[r]); });
      check(parts, thrown);
      release_replicas(first_);
      release_replicas(second_);
      replicate();
    }
  }

private:
  /// A deadline of an hour where whoever is at fault says so: that all come
  /// back without it.
  batch_norm_options options_of(std::string name) const {
    return {.name = std::move(name),
            .channels = 3,
            .type = dtype::float64,
            .deadline = is_patient_ ? caf::timespan{1h} : 60ms,
            .fan_in = fan_in_};
  }

  void replicate() {
    execute_replication_callbacks(first_);
    execute_replication_callbacks(second_);
  }

  std::vector<part> cast_parts() {
    std::vector<part> result(copies_);
    if (random_() % 2 == 0)
      return result;
    for (auto& x : result)
      if (random_() % 4 == 0)
        x = {static_cast<deed>(1 + random_() % (is_patient_ ? 2 : 4)),
             random_() % 4};
    return result;
  }

  void play(std::size_t r, const part& mine) {
    try {
      calls of{r};
      for (std::size_t call = 0; call < 4; ++call)
        if (mine.what == deed::works || mine.call != call)
          make(of, call);
        else if (mine.what == deed::throws)
          throw std::runtime_error{"a fault of the test's"};
        else if (mine.what == deed::has_wrong_shape)
          make_wrong(of, call);
        else if (mine.what == deed::returns)
          return;
    } catch (const std::exception& x) {
      fail_replica(first_[r].get(), x.what());
      fail_replica(second_[r].get(), x.what());
      throw;
    }
  }

  /// What a copy calculates with.
  struct calls {
    explicit calls(std::size_t r) : copy{r} {
      std::mt19937 random{static_cast<std::uint32_t>(r)};
      fill(x, random, 5, 3);
      fill(dy, random, 0, 1);
    }

    std::size_t copy;
    tensor x{layout_of(3)}, y = x, z = x, dy = x;
    batch_norm_tape first, second;
  };

  static tensor_layout layout_of(std::int64_t channels) {
    return make_layout(dtype::float64,
                       std::array<std::int64_t, 2>{2, channels});
  }

  /// Forward through both, then backward.
  void make(calls& of, std::size_t call) {
    auto& a = *first_[of.copy];
    auto& b = *second_[of.copy];
    if (call == 0)
      of.first = a.forward(of.x.view(), of.y.view());
    else if (call == 1)
      of.second = b.forward(of.y.view(), of.z.view());
    else if (call == 2)
      b.backward(of.dy.view(), of.y.view(), of.second, of.dy.view());
    else
      a.backward(of.dy.view(), of.x.view(), of.first, of.dy.view());
  }

  void make_wrong(calls& of, std::size_t call) {
    of.x = of.y = of.dy = tensor{layout_of(4)};
    make(of, call);
    FAIL_CHECK("a wrong shape is taken");
  }

  void check(const std::vector<part>& parts,
             const std::vector<std::exception_ptr>& thrown) {
    auto has_fault = false;
    for (const auto& x : parts)
      has_fault = has_fault || x.what != deed::works;
    for (std::size_t r = 0; r < copies_; ++r) {
      auto got = outcome(thrown[r]);
      INFO(got.second);
      if (parts[r].what == deed::works)
        CHECK((!thrown[r] || got.first != errc::none));
      if (is_patient_ && !has_fault)
        CHECK(!thrown[r]);
    }
    if (is_patient_)
      for (auto* copies : {&first_, &second_})
        check_agree(*copies);
  }

  /// A round has run for all copies, or for none.
  static void check_agree(const layers& copies) {
    for (const auto* name :
         {"running_mean", "running_var", "num_batches_tracked"})
      for (const auto& copy : copies)
        CHECK(read(copy->replica().state(), name)
              == read(copies[0]->replica().state(), name));
  }

  std::mt19937 random_;
  std::size_t copies_;
  bool is_patient_;
  std::int64_t fan_in_;
  layers first_;
  layers second_;
};

} // namespace

TEST_CASE_FIXTURE(layer_fixture,
                  "whichever copies of a net throw, have the wrong shape, "
                  "return or skip a layer, all come back, in the same state, "
                  "and run again") {
  for (int seed = 1; seed <= runs; ++seed) {
    CAPTURE(seed);
    layer_run{system, static_cast<std::uint32_t>(seed)}.run();
  }
}
