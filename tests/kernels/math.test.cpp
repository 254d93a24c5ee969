#include "kernels/math.hpp"
#include "kernels/elements.hpp"
#include "kernels/half.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

using namespace syncnorm;
using math::mean_m2;

namespace {

mean_m2<double> two_pass(const std::vector<double>& values) {
  auto mean = std::accumulate(values.begin(), values.end(), 0.0)
              / double(values.size());
  auto m2 = 0.0;
  for (auto x : values)
    m2 += (x - mean) * (x - mean);
  return {mean, m2};
}

constexpr auto not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr auto infinity = std::numeric_limits<double>::infinity();

} // namespace

TEST_CASE("shifted sums give the moments whatever value is the pivot") {
  std::vector<double> values{3, -1, 4, 1, -5, 9, 2};
  auto expected = two_pass(values);
  for (auto pivot : {0.0, 3.0, expected.mean, -20.0}) {
    auto sum = 0.0;
    auto squares = 0.0;
    for (auto x : values)
      elements::add_shifted(x, pivot, sum, squares);
    auto got = math::from_shifted_sums(pivot, sum, squares, 7.0);
    CHECK(got.mean == doctest::Approx(expected.mean).epsilon(1e-14));
    CHECK(got.m2 == doctest::Approx(expected.m2).epsilon(1e-13));
  }
}

TEST_CASE("moments are extended by values that were summed about their mean") {
  std::vector<double> values{3, 5, 4, 9, 1e4};
  auto before = two_pass(values);
  auto shift = 0.0;
  auto squares = 0.0;
  for (auto x : {2.0, 6.0, 6.0, -7.0}) {
    values.push_back(x);
    shift += (x - before.mean) / 9;
    squares += (x - before.mean) * (x - before.mean);
  }
  auto got = math::extended(before, shift, squares, 9.0);
  auto want = two_pass(values);
  CHECK(got.mean == doctest::Approx(want.mean).epsilon(1e-14));
  CHECK(got.m2 == doctest::Approx(want.m2).epsilon(1e-14));
}

TEST_CASE("shifted sums never give a negative sum of squares, but keep NaN") {
  CHECK(math::from_shifted_sums(0.f, 3.f, 2.99999f, 3.f).m2 == 0);
  CHECK(std::isnan(
      math::from_shifted_sums(0.0, not_a_number, not_a_number, 3.0).m2));
}

TEST_CASE(
    "moments that are extended by subnormal squares have no negative sum, "
    "but keep NaN") {
  // The square of the shift is rounded up before it is multiplied by the count.
  constexpr float x = 3.54695e-23F;
  constexpr float squares = 31 * (x * x);
  auto got = math::extended<float>({}, 31 * x / 32, squares, 32);
  CHECK(got.m2 >= 0);
  CHECK(std::isnan(math::extended<float>({}, 0, NAN, 32).m2));
}

TEST_CASE("the merged moments of two sets are those of their union") {
  std::vector<double> a{1, 2, 4};
  std::vector<double> b{-3, 10, 0.5, 0.25, 7};
  auto both = a;
  both.insert(both.end(), b.begin(), b.end());
  auto expected = two_pass(both);
  auto got = math::merged_node(two_pass(a), 3, two_pass(b), 5);
  CHECK(got.mean == doctest::Approx(expected.mean).epsilon(1e-14));
  CHECK(got.m2 == doctest::Approx(expected.m2).epsilon(1e-14));
}

TEST_CASE("an empty side of a merge changes nothing, whatever it holds") {
  mean_m2<float> some{1.5f, 2.5f};
  mean_m2<float> garbage{float(not_a_number), float(infinity)};
  for (auto got : {math::merged_node(some, 4, garbage, 0),
                   math::merged_node(garbage, 0, some, 4)}) {
    CHECK(got.mean == some.mean);
    CHECK(got.m2 == some.m2);
  }
}

TEST_CASE("the tree is cut at the largest power of two below the count") {
  CHECK(math::tree_split(2) == 1);
  CHECK(math::tree_split(3) == 2);
  CHECK(math::tree_split(4) == 2);
  CHECK(math::tree_split(5) == 4);
  CHECK(math::tree_split(8) == 4);
  CHECK(math::tree_split(9) == 8);
  CHECK(math::tree_split(10'000) == 8192);
}

TEST_CASE("the inverse standard deviation adds epsilon or clamps to it") {
  CHECK(math::inverse_deviation(3.0, 1.0, eps_mode::plus) == 0.5);
  CHECK(math::inverse_deviation(4.0, 1.0, eps_mode::clamp) == 0.5);
  CHECK(math::inverse_deviation(0.5, 4.0, eps_mode::clamp) == 0.5);
  CHECK(
      std::isnan(math::inverse_deviation(not_a_number, 1.0, eps_mode::clamp)));
}

TEST_CASE("finalize normalizes by the biased, averages the unbiased variance") {
  finalize_options options{.eps = 0, .mode = eps_mode::plus, .momentum = 0.25};
  auto got = math::finalize({2, 12}, 3, options, 10, 20);
  CHECK(got.mean == 2);
  CHECK(got.inv_std == 0.5);
  CHECK(got.running_mean == 0.75 * 10 + 0.25 * 2);
  CHECK(got.running_var == 0.75 * 20 + 0.25 * 6);
}

TEST_CASE("finalize keeps the running variance where a count of 1 has none") {
  auto got = math::finalize({2, 0}, 1, {}, 10, 20);
  CHECK(got.running_mean == doctest::Approx(9.2));
  CHECK(got.running_var == 20);
}

TEST_CASE("finalize of nothing changes no running statistics and reads none") {
  auto got =
      math::finalize({not_a_number, not_a_number}, 0, {.eps = 0.25}, 10, 20);
  CHECK(got.mean == 0);
  CHECK(got.inv_std == 2);
  CHECK(got.running_mean == 10);
  CHECK(got.running_var == 20);
}

TEST_CASE("the element formulas are the documented ones") {
  CHECK(elements::normalized(5.0, 3.0, 2.0, 7.0) == 11);
  // weight 2, inv_std 0.5, sum_dy 8, sum_dy_xmu 16, count 4
  auto k = math::backward_constants_of<double>(3, 0.5, 2, 8, 16, 4);
  auto dy = 10.0;
  auto x = 5.0;
  CHECK(
      elements::input_gradient(dy, x, k.mean, k.mean_dy, k.projection, k.scale)
      == 2 * 0.5 * (dy - 8.0 / 4 - (x - 3) * 0.25 * 16 / 4));
}

TEST_CASE(
    "an inverse deviation whose square float32 does not hold makes finite "
    "constants") {
  constexpr float inv_std = 3.3e19F;
  auto k =
      math::backward_constants_by_share<float>(0, inv_std, 1, 0, 1e-18F, 0.5F);
  CHECK(k.projection == doctest::Approx(5.445e20F));
  CHECK(math::backward_constants_by_share<float>(0, inv_std, 1, 0, 0, 0.5F)
            .projection
        == 0);
  CHECK(std::isnan(
      math::backward_constants_by_share<float>(0, INFINITY, 1, 0, 0, 0.5F)
          .projection));
}

TEST_CASE("a difference comes before the scale: the mean's digits cancel") {
  // x * scale + (bias - mean * scale) would round 2e8 to a multiple of 16.
  CHECK(elements::normalized(10001.f, 10000.f, 20000.f, 1.f) == 20001.f);
}

TEST_CASE("every float16 survives the way to float32 and back") {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    float16 half{std::uint16_t(bits)};
    auto value = to_float(half);
    auto again = to_float16(value);
    if (std::isnan(value))
      CHECK(std::isnan(to_float(again)));
    else
      REQUIRE(again.bits == half.bits);
  }
}

TEST_CASE(
    "float16 rounds to nearest, ties to even, and overflows to infinity") {
  CHECK(to_float(to_float16(1.f + 0x1p-11f)) == 1.f);
  CHECK(to_float(to_float16(1.f + 0x3p-11f)) == 1.f + 0x1p-9f);
  CHECK(to_float(to_float16(1.f + 0x1p-11f + 0x1p-20f)) == 1.f + 0x1p-10f);
  CHECK(to_float(to_float16(65519.f)) == 65504.f);
  CHECK(to_float(to_float16(65520.f)) == float(infinity));
  CHECK(to_float(to_float16(-1e30f)) == -float(infinity));
  CHECK(to_float(to_float16(0x1p-24f)) == 0x1p-24f);
  CHECK(to_float(to_float16(0x1p-25f)) == 0);
  CHECK(to_float(to_float16(0x3p-25f)) == 0x1p-23f);
  CHECK(std::signbit(to_float(to_float16(-0.f))));
}

TEST_CASE("every bfloat16 survives the way to float32 and back") {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    bfloat16 half{std::uint16_t(bits)};
    auto value = to_float(half);
    if (std::isnan(value))
      CHECK(std::isnan(to_float(to_bfloat16(value))));
    else
      REQUIRE(to_bfloat16(value).bits == half.bits);
  }
}

TEST_CASE("bfloat16 rounds to nearest, ties to even, overflows to infinity") {
  CHECK(to_float(to_bfloat16(1.f + 0x1p-8f)) == 1.f);
  CHECK(to_float(to_bfloat16(1.f + 0x3p-8f)) == 1.f + 0x1p-6f);
  CHECK(to_float(to_bfloat16(1.f + 0x1p-8f + 0x1p-20f)) == 1.f + 0x1p-7f);
  CHECK(to_float(to_bfloat16(3.4e38f)) == float(infinity));
}

TEST_CASE("a NaN stays one in 16 bits, whatever its digits") {
  for (std::uint32_t bits :
       {0x7f800001u, 0x7f801fffu, 0x7f80ffffu, 0x7fc00000u, 0x7fffffffu}) {
    INFO(bits);
    for (auto sign : {0u, 0x80000000u}) {
      auto value = std::bit_cast<float>(bits | sign);
      CHECK(std::isnan(to_float(to_float16(value))));
      CHECK(std::isnan(to_float(to_bfloat16(value))));
    }
  }
}
