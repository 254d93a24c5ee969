#include "syncnorm/moments.hpp"

#include "tests/kernels/cases.hpp"
#include "tests/kernels/reference.hpp"
#include "tests/kernels/tolerance.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <utility>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// The moments of a tensor as `batch_moments` gives them.
struct result {
  std::int64_t count = 0;
  std::vector<double> mean;
  std::vector<double> m2;
};

result moments_of(tensor& x, dtype type, const execution& run = {}) {
  auto layout = x.view().layout();
  auto channels = layout.shape.channels;
  channel_array mean{type, channels};
  channel_array m2{type, channels};
  scratch_memory scratch{batch_moments_workspace(layout)};
  moments_view out{-1, mean.data(), m2.data(), channels, type, {}};
  batch_moments(run, x.view(), out, scratch.get());
  CHECK(mean.guards_intact());
  CHECK(m2.guards_intact());
  CHECK(scratch.guards_intact());
  CHECK(x.guards_intact());
  return {out.count, mean.get(), m2.get()};
}

/// The number of channels whose moments are not those of the reference.
int wrong_channels(const result& got, const std::vector<channel_moments>& want,
                   dtype type) {
  int wrong = 0;
  for (std::size_t c = 0; c < want.size(); ++c) {
    auto mean_scale = std::abs(want[c].mean) + want[c].deviation();
    auto good = near(got.mean[c], {want[c].mean, mean_scale},
                     tolerance::of("batch_moments: mean", type))
                && near(got.m2[c], {want[c].m2, want[c].m2},
                        tolerance::of("batch_moments: m2", type));
    wrong += good ? 0 : 1;
  }
  return wrong;
}

void check_moments(const layout_case& one) {
  auto shape = one.layout.shape;
  tensor x{one.layout, random_values(shape, 1, 0.5, 2), one.skip};
  auto type = statistics_type(one.layout.type);
  auto got = moments_of(x, type);
  CHECK(got.count == shape.per_channel());
  CHECK(wrong_channels(got, reference_moments(x.get()), one.layout.type) == 0);
}

} // namespace

TEST_CASE("moments are those of the definition, whatever dtype and layout") {
  for_each_case(small_shapes, check_moments);
}

TEST_CASE("moments of tensors that are reduced in slabs are right as well") {
  for (const auto& shape : large_shapes)
    for (auto type : {dtype::float32, dtype::float64})
      for (const auto& one : layouts_of(type, shape)) {
        INFO(describe(one.layout));
        check_moments(one);
      }
}

TEST_CASE("the first rows' mean is no pivot for hundreds of others") {
  for (tensor_shape shape : {tensor_shape{260, 1000, 1}, {4, 512, 49}})
    for (auto type : all_types)
      for (const auto& one : layouts_of(type, shape))
        for (auto seed = 0U; seed < 3; ++seed) {
          INFO(describe(one.layout), ", seed ", seed);
          tensor x{one.layout, random_values(shape, seed), one.skip};
          CHECK(wrong_channels(moments_of(x, statistics_type(type)),
                               reference_moments(x.get()), type)
                == 0);
        }
}

TEST_CASE("moments of a half tensor may be asked for in float64") {
  tensor_layout layout{dtype::bfloat16, {3, 5, 7}, {}, 35, {}};
  tensor x{layout, random_values(layout.shape, 2)};
  auto wide = moments_of(x, dtype::float64);
  auto narrow = moments_of(x, dtype::float32);
  for (std::size_t c = 0; c < 5; ++c)
    CHECK(float(wide.mean[c]) == float(narrow.mean[c]));
}

#ifndef SYNCNORM_BASELINE_ONLY
TEST_CASE("each instruction set has kernels of its own") {
  // Sums over vectors of another length are rounded otherwise.
  tensor_layout layout{dtype::float32, {3, 1, 5000}, {}, 5000, {}};
  tensor x{layout, random_values(layout.shape, 7, 1, 2)};
  std::set<double> results;
  for_each_target([&] { results.insert(moments_of(x, dtype::float64).m2[0]); });
  std::set<int> lengths;
  auto all = hwy::SupportedTargets();
  for (auto [target, length] :
       {std::pair{HWY_SCALAR, 1}, {HWY_SSE4, 4}, {HWY_AVX2, 8}, {HWY_AVX3, 16}})
    if ((all & target) != 0)
      lengths.insert(length);
  CHECK(results.size() >= lengths.size());
}
#endif

namespace {

/// Expects the moments of the reference, and a variance with digits.
void check_variance(const layout_case& one, const values& source) {
  auto type = one.layout.type;
  tensor x{one.layout, source, one.skip};
  auto got = moments_of(x, statistics_type(type));
  auto want = reference_moments(x.get());
  CHECK(wrong_channels(got, want, type) == 0);
  for (std::size_t c = 0; c < want.size(); ++c)
    REQUIRE(std::abs(got.m2[c] / double(want[c].m2) - 1) < 1e-3);
}

/// From sample to sample the values drift, by four deviations in all.
values drifting_values(const tensor_shape& shape, double mean) {
  auto result = random_values(shape, 3, mean, 1);
  result.for_each([&](auto n, auto c, auto s) {
    result.at(n, c, s) += 4 * double(n) / double(shape.samples);
  });
  return result;
}

/// Of values of deviation 1.
struct distant_mean {
  dtype type;
  double mean;
};

const std::vector<tensor_shape> planes_and_rows{
    {16, 3, 3136}, {64, 8, 49}, {500, 130, 1}};

} // namespace

TEST_CASE("the variance survives a mean far beyond the deviation") {
  for_each_target([&] {
    for (const auto& given : {distant_mean{dtype::float32, 10},
                              {dtype::float32, 1e3},
                              {dtype::float32, 1e4},
                              {dtype::float64, 1e4},
                              {dtype::float64, 1e8}})
      for (const auto& shape : planes_and_rows)
        for (const auto& one : layouts_of(given.type, shape)) {
          INFO(describe(one.layout), ", mean / deviation ", given.mean);
          check_variance(one, random_values(shape, 3, given.mean, 1));
        }
  });
}

TEST_CASE("the variance of values that drift survives a mean far beyond it") {
  for_each_target([&] {
    for (const auto& given :
         {distant_mean{dtype::float32, 1e4}, {dtype::float64, 1e8}})
      for (const auto& shape : planes_and_rows)
        for (const auto& one : layouts_of(given.type, shape)) {
          INFO(describe(one.layout), ", mean ", given.mean);
          check_variance(one, drifting_values(shape, given.mean));
        }
  });
}

TEST_CASE("slabs of float64 are merged without their mean's digits") {
  for (tensor_shape shape : {tensor_shape{16, 3, 70'000}, {3, 1, 1'100'000}})
    for (const auto& one : layouts_of(dtype::float64, shape)) {
      INFO(describe(one.layout));
      check_variance(one, drifting_values(shape, 1e8));
    }
}

TEST_CASE("where no sum is rounded, all instruction sets give the same bits") {
  // Blocks of 4 rows, of 64 and of the rest, of integers. The mean of the first
  // two, which the next has as its pivot, is 0; what is rounded are quotients
  // and products after sums.
  for (tensor_shape shape : {tensor_shape{197, 130, 1}, {19, 140, 11}}) {
    auto source = random_values(shape, 8, 100, 10);
    source.for_each([&](auto n, auto c, auto s) {
      constexpr double first[]{3, -3, 1, -1};
      auto row = n * shape.spatial + s;
      auto& value = source.at(n, c, s);
      value = row < 68 ? first[row % 4] : std::round(value);
    });
    tensor_layout layout{dtype::float64,
                         shape,
                         memory_format::channels_last,
                         shape.channels * shape.spatial,
                         {}};
    tensor x{layout, source};
    std::set<std::vector<double>> results;
    for_each_target([&] {
      auto got = moments_of(x, dtype::float64);
      got.mean.insert(got.mean.end(), got.m2.begin(), got.m2.end());
      results.insert(got.mean);
    });
    CHECK(results.size() == 1);
  }
}

TEST_CASE("an outlier that comes first does not spoil the variance") {
  for_each_target([&] {
    for (tensor_shape shape : {tensor_shape{4, 3, 4096},
                               {64, 8, 49},
                               {3, 2, 196},
                               {3, 2, 255},
                               {3, 2, 511}})
      for (auto mean : {1e4, 123.4})
        for (const auto& one : layouts_of(dtype::float32, shape)) {
          INFO(describe(one.layout), ", mean ", mean);
          auto source = random_values(shape, 4, mean, 1);
          for (std::int64_t c = 0; c < shape.channels; ++c)
            source.at(0, c, 0) = mean == 1e4 ? 0 : 1.37e4;
          tensor x{one.layout, source, one.skip};
          // The outlier is about all of m2; so ask for what is left without it.
          auto got = moments_of(x, dtype::float64);
          auto want = reference_moments(x.get());
          auto bound = 5e-5; // docs/numerics.md: a few epsilon, 65 times
          for (std::size_t c = 0; c < want.size(); ++c)
            REQUIRE(near(got.m2[c], {want[c].m2, want[c].m2}, bound));
        }
  });
}

TEST_CASE("an outlier that comes first costs float64 as many digits in rows of "
          "few channels as in planes") {
  for_each_target([&] {
    for (std::int64_t channels : {2, 3, 5, 127}) {
      tensor_shape shape{4000, channels, 1};
      std::mt19937 random{7};
      std::uniform_real_distribution<double> uniform{0, 1};
      for (int turn = 0; turn < 20; ++turn) {
        values source{shape};
        // Sums of numbers that are all alike round to one side.
        auto others = uniform(random);
        source.for_each([&](auto n, auto c, auto s) {
          source.at(n, c, s) = n == 0 ? 1e3 * uniform(random) : others;
        });
        for (const auto& one : layouts_of(dtype::float64, shape)) {
          INFO(describe(one.layout));
          tensor x{one.layout, source, one.skip};
          auto got = moments_of(x, dtype::float64);
          auto want = reference_moments(x.get());
          for (std::size_t c = 0; c < want.size(); ++c)
            // docs/numerics.md: what such a beginning may cost.
            REQUIRE(std::abs(got.m2[c] - want[c].m2) <= 1e-13 * want[c].m2);
        }
      }
    }
  });
}

TEST_CASE("samples of very different means give the variance of all") {
  for_each_target([&] {
    for (tensor_shape shape : {tensor_shape{12, 3, 5000}, {200, 6, 49}})
      for (const auto& one : layouts_of(dtype::float32, shape)) {
        INFO(describe(one.layout));
        auto source = random_values(shape, 5);
        source.for_each([&](auto n, auto c, auto s) {
          source.at(n, c, s) += double(n % 3) * 1000;
        });
        tensor x{one.layout, source, one.skip};
        CHECK(wrong_channels(moments_of(x, dtype::float32),
                             reference_moments(x.get()), dtype::float32)
              == 0);
      }
  });
}

TEST_CASE("squares that round to one side do not add up over many tiny "
          "planes") {
  for_each_target([&] {
    for (const auto& shape : tiny_planes)
      for (auto unit : {0.3, 0.7, 0.9})
        for (const auto& one : layouts_of(dtype::float32, shape)) {
          INFO(describe(one.layout), ", unit ", unit);
          auto source = alternating_values(
              shape, [unit](auto c) { return unit * (1 + double(c) / 12); });
          tensor x{one.layout, source, one.skip};
          auto got = moments_of(x, dtype::float32);
          auto want = reference_moments(x.get());
          auto limit = tolerance::of("batch_moments: m2", dtype::float32);
          for (std::size_t c = 0; c < want.size(); ++c)
            CHECK(near(got.m2[c], {want[c].m2, want[c].m2}, limit));
        }
  });
}

TEST_CASE("NaN and infinity stay in their channel") {
  for_each_target([&] {
    for (auto bad : {std::numeric_limits<double>::quiet_NaN(),
                     std::numeric_limits<double>::infinity()})
      for (tensor_shape shape :
           {tensor_shape{3, 5, 600}, {3, 5, 49}, {40, 70, 1}, {3, 140, 4}})
        for (auto type : all_types)
          for (const auto& one : layouts_of(type, shape)) {
            INFO(describe(one.layout));
            auto source = random_values(shape, 6);
            auto good = source;
            source.at(1, 2, shape.spatial / 2) = bad;
            tensor x{one.layout, source, one.skip};
            tensor without{one.layout, good, one.skip};
            auto type_of_moments = statistics_type(type);
            auto got = moments_of(x, type_of_moments);
            auto want = moments_of(without, type_of_moments);
            CHECK_FALSE(std::isfinite(got.mean[2]));
            CHECK_FALSE(std::isfinite(got.m2[2]));
            got.mean[2] = want.mean[2];
            got.m2[2] = want.m2[2];
            CHECK(got.mean == want.mean);
            CHECK(got.m2 == want.m2);
          }
  });
}

TEST_CASE("moments of a constant are that constant and zero") {
  for (const auto& shape : small_shapes) {
    values source{shape};
    source.for_each([&](auto n, auto c, auto s) {
      source.at(n, c, s) = 1234.5 + double(c);
    });
    for (const auto& one : layouts_of(dtype::float32, shape)) {
      tensor x{one.layout, source, one.skip};
      auto got = moments_of(x, dtype::float32);
      for (std::size_t c = 0; c < got.mean.size(); ++c) {
        REQUIRE(got.mean[c] == 1234.5 + double(c));
        REQUIRE(got.m2[c] == 0);
      }
    }
  }
}

TEST_CASE("an empty batch has the count 0 and nothing else is written") {
  for (tensor_shape shape : {tensor_shape{0, 3, 4}, {2, 3, 0}}) {
    auto layout =
        make_layout(dtype::float32,
                    std::vector{shape.samples, std::int64_t{3}, shape.spatial});
    channel_array mean{dtype::float32, 3};
    channel_array m2{dtype::float32, 3};
    moments_view out{-1, mean.data(), m2.data(), 3, dtype::float32, {}};
    batch_moments({}, const_tensor_view{nullptr, layout}, out, {});
    CHECK(out.count == 0);
    CHECK(mean.untouched());
    CHECK(m2.untouched());
  }
}
