#include "trainer/run/model_state.hpp"

#include "trainer/scratch_folder.hpp"
#include "trainer/test_config.hpp"

#include "tests/actors/wire.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <limits>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::train;

namespace {

model_state some_state() {
  model_state result;
  result.fingerprint = 0xfedcba9876543210U;
  result.weights = flat_array{std::vector{1.0F, 2.0F, 3.0F}};
  result.velocity = flat_array{std::vector{4.0F, 5.0F, 6.0F}};
  result.statistics = flat_array{std::vector{0.5F, 1.5F}};
  result.batches = {7};
  return result;
}

constexpr model_layout some_layout{0xfedcba9876543210U, false, 3, 2, 1};

/// Why it is no state of `some_layout` with that change.
template <class F>
std::string refusal(F change) {
  auto state = some_state();
  change(state);
  return message_of([&] { require_fit(state, some_layout); });
}

template <class T>
std::vector<std::uint64_t> bits_of(const shared_array<T>& values) {
  std::vector<std::uint64_t> result;
  for (auto x : values)
    if constexpr (sizeof x == sizeof(float))
      result.push_back(std::bit_cast<std::uint32_t>(x));
    else
      result.push_back(std::bit_cast<std::uint64_t>(x));
  return result;
}

} // namespace

TEST_CASE("a model's state reaches another process bit for bit") {
  (void) configuration(); // Knows the messages.
  using single = std::numeric_limits<float>;
  using wide = std::numeric_limits<double>;
  auto state = some_state();
  state.weights = flat_array{std::vector{-0.0F, single::denorm_min(),
                                         std::nanf("7"), -single::infinity()}};
  state.velocity = flat_array{
      std::vector{-0.0, wide::denorm_min(), -std::nan("7"), wide::infinity()}};
  state.batches = {0, 1, std::numeric_limits<std::int64_t>::max()};
  model_state found;
  REQUIRE(test::deserialize(test::serialize(state), found));
  CHECK(found.fingerprint == state.fingerprint);
  CHECK(bits_of(found.weights.f32) == bits_of(state.weights.f32));
  CHECK(bits_of(found.velocity.f64) == bits_of(state.velocity.f64));
  CHECK(bits_of(found.statistics.f32) == bits_of(state.statistics.f32));
  CHECK(found.batches == state.batches);
}

TEST_CASE("a model's state that is cut off anywhere is refused") {
  (void) configuration();
  auto good = test::serialize(some_state());
  for (std::size_t n = 0; n < good.size(); ++n) {
    model_state found;
    REQUIRE_FALSE(test::deserialize(std::span{good}.first(n), found));
  }
}

TEST_CASE("a state of another model, of another type or of other sizes is "
          "refused by what was expected and found") {
  CHECK(refusal([](model_state&) {}) == "nothing was thrown");
  CHECK(refusal([](model_state& x) { x.fingerprint = 7; })
        == "a model's state: expected one of model fedcba9876543210, found one "
           "of 0000000000000007");
  const std::string start = "a model's state: expected ";
  CHECK(
      refusal([](model_state& x) { x.weights = flat_array{std::vector{1.0F}}; })
      == start + "3 weights in float32, found 1 in float32");
  CHECK(refusal([](model_state& x) { x.weights = {}; })
        == start + "3 weights in float32, found 0 in float32");
  CHECK(refusal([](model_state& x) {
          x.weights = flat_array{std::vector{1.0, 2.0, 3.0}};
        })
        == start + "3 weights in float32, found 3 in float64");
  CHECK(refusal([](model_state& x) { x.weights.f64 = {1.0}; })
        == start + "3 weights in float32, found 3 in float32 and 1 in float64");
  CHECK(refusal([](model_state& x) {
          x.velocity = flat_array{std::vector(4, 1.0F)};
        })
        == start + "3 velocities in float32, found 4 in float32");
  CHECK(refusal([](model_state& x) {
          x.statistics = flat_array{std::vector(2, 1.0)};
        })
        == start + "2 statistics in float32, found 2 in float64");
  CHECK(refusal([](model_state& x) {
          x.batches = {1, 2};
        })
        == start + "1 counts of batches, found 2");
  CHECK(refusal([](model_state& x) { x.batches = {-1}; })
        == start + "counts of batches from 0 on, found -1");
}

TEST_CASE("a model in float64 takes a state in float64 alone") {
  auto layout = some_layout;
  layout.is_float64 = true;
  auto state = some_state();
  CHECK(message_of([&] { require_fit(state, layout); })
        == "a model's state: expected 3 weights in float64, found 3 in "
           "float32");
  state.weights = flat_array{std::vector(3, 1.0)};
  state.velocity = state.weights;
  state.statistics = flat_array{std::vector(2, 1.0)};
  require_fit(state, layout);
}

TEST_CASE(
    "what is not finite in a model's state is found, wherever it is and in "
    "either type") {
  CHECK(find_not_finite(some_state()).empty());
  auto found = [](auto change) {
    auto state = some_state();
    change(state);
    return find_not_finite(state);
  };
  auto nan = std::numeric_limits<double>::quiet_NaN();
  auto infinity = -std::numeric_limits<float>::infinity();
  CHECK(found([&](auto& x) {
          x.weights = flat_array{std::vector{1.0, nan}};
        })
        == "weights");
  CHECK(found([&](auto& x) {
          x.velocity = flat_array{std::vector{infinity, 1.0F}};
        })
        == "velocities");
  CHECK(
      found([&](auto& x) { x.statistics = flat_array{std::vector{infinity}}; })
      == "statistics");
}
