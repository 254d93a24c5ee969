#include "syncnorm/moments.hpp"

#include "syncnorm/batch_norm.hpp"

#include "tests/kernels/cases.hpp"
#include "tests/kernels/reference.hpp"
#include "tests/kernels/tolerance.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <utility>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// Moments and their memory.
struct part {
  part(dtype type, std::int64_t channels)
      : mean{std::make_unique<channel_array>(type, channels)},
        m2{std::make_unique<channel_array>(type, channels)},
        view{0, mean->data(), m2->data(), channels, type, {}} {}

  part(dtype type, std::int64_t count, const std::vector<double>& mean_values,
       const std::vector<double>& m2_values)
      : mean{std::make_unique<channel_array>(type, mean_values)},
        m2{std::make_unique<channel_array>(type, m2_values)},
        view{count,      mean->data(),
             m2->data(), std::int64_t(mean_values.size()),
             type,       {}} {}

  std::unique_ptr<channel_array> mean;
  std::unique_ptr<channel_array> m2;
  moments_view view;
};

/// How far M2 may be off: beside its tolerance, each node rounds means that
/// are far from 0 to `type`, which their distances then lack.
double m2_limit(dtype type, const std::vector<part>& parts,
                const channel_moments& total, std::int64_t c) {
  auto epsilon = type == dtype::float64 ? 0x1p-53 : 0x1p-24;
  double distance = 0;
  for (const auto& one : parts)
    if (one.view.count > 0)
      distance =
          std::max(distance, std::abs((*one.mean)[c] - double(total.mean)));
  auto variance = double(total.m2) / double(total.count);
  return tolerance::of("merge_moments: m2", type)
         + 2 * epsilon * std::abs(double(total.mean)) * distance / variance;
}

part random_part(dtype type, std::int64_t channels, std::int64_t count,
                 unsigned seed) {
  return {type, count, random_channels(channels, seed, -3, 3),
          random_channels(channels, seed + 1000, 0, 5.0 * double(count))};
}

std::vector<part> random_parts(dtype type, std::int64_t channels,
                               unsigned parts) {
  std::vector<part> result;
  for (unsigned i = 0; i < parts; ++i)
    result.push_back(random_part(type, channels, (i * 7 + 3) % 11, i));
  return result;
}

/// Of `n` values of mean 1e4 and deviation 1 each.
std::vector<part> distant_parts(dtype type, std::int64_t channels,
                                unsigned parts, std::int64_t n) {
  std::mt19937 engine{9};
  std::normal_distribution<double> normal;
  std::vector<part> result;
  for (unsigned i = 0; i < parts; ++i) {
    std::vector<double> mean;
    std::vector<double> m2;
    for (std::int64_t c = 0; c < channels; ++c) {
      mean.push_back(1e4 + normal(engine) / std::sqrt(double(n)));
      m2.push_back(double(n) + normal(engine) * std::sqrt(2 * double(n)));
    }
    result.emplace_back(type, n, mean, m2);
  }
  return result;
}

std::vector<const_moments_view> views(const std::vector<part>& parts) {
  std::vector<const_moments_view> result;
  for (const auto& one : parts)
    result.emplace_back(one.view);
  return result;
}

part merged(std::span<const const_moments_view> parts) {
  part result{parts[0].type, parts[0].channels};
  merge_moments({}, parts, result.view);
  CHECK(result.mean->guards_intact());
  CHECK(result.m2->guards_intact());
  return result;
}

bool same_bits(const part& a, const part& b) {
  return a.view.count == b.view.count && a.mean->get() == b.mean->get()
         && a.m2->get() == b.m2->get();
}

/// Chan's formula in extended precision, one part after the other.
std::vector<channel_moments> reference_merge(const std::vector<part>& parts) {
  std::vector<channel_moments> result(std::size_t(parts[0].view.channels));
  for (const auto& one : parts)
    for (std::size_t c = 0; c < result.size() && one.view.count > 0; ++c) {
      auto& a = result[c];
      auto n_b = real(one.view.count);
      auto n = real(a.count) + n_b;
      auto delta = real((*one.mean)[std::int64_t(c)]) - a.mean;
      a.m2 += real((*one.m2)[std::int64_t(c)])
              + delta * delta * real(a.count) * n_b / n;
      a.mean += delta * n_b / n;
      a.count += one.view.count;
    }
  return result;
}

part moments_of(tensor& x, dtype type) {
  auto layout = x.view().layout();
  part result{type, layout.shape.channels};
  scratch_memory scratch{batch_moments_workspace(layout)};
  batch_moments({}, x.view(), result.view, scratch.get());
  return result;
}

/// Samples [first, last) of a gapless tensor.
tensor_view samples(tensor& x, std::int64_t first, std::int64_t last) {
  auto layout = x.view().layout();
  layout.shape.samples = last - first;
  auto* data = static_cast<std::byte*>(x.view().data());
  return {
      data + first * layout.sample_stride * std::int64_t(size_of(layout.type)),
      layout};
}

} // namespace

TEST_CASE("the merge of any number of parts follows Chan's formula") {
  for (auto type : {dtype::float32, dtype::float64})
    for (unsigned count : {1U, 2U, 3U, 5U, 8U, 13U, 64U, 100U}) {
      INFO(to_string(type), ", ", count, " parts");
      auto parts = random_parts(type, 67, count);
      auto want = reference_merge(parts);
      auto got = merged(views(parts));
      for (std::int64_t c = 0; c < 67; ++c) {
        const auto& channel = want[std::size_t(c)];
        REQUIRE(got.view.count == channel.count);
        auto scale = std::abs(channel.mean) + channel.deviation();
        REQUIRE(near((*got.mean)[c], {channel.mean, scale},
                     tolerance::of("merge_moments: mean", type)));
        REQUIRE(near((*got.m2)[c], {channel.m2, channel.m2},
                     tolerance::of("merge_moments: m2", type)));
      }
    }
}

TEST_CASE("means far beyond the deviation cost M2 the digits that rounding "
          "takes from them") {
  for (auto type : {dtype::float32, dtype::float64})
    for (unsigned count : {2U, 8U, 64U, 100U})
      for (std::int64_t n : {49, 784, 12544}) {
        INFO(to_string(type), ", ", count, " parts of ", n);
        auto parts = distant_parts(type, 67, count, n);
        auto want = reference_merge(parts);
        auto got = merged(views(parts));
        for (std::int64_t c = 0; c < 67; ++c) {
          const auto& channel = want[std::size_t(c)];
          auto scale = std::abs(channel.mean) + channel.deviation();
          REQUIRE(near((*got.mean)[c], {channel.mean, scale},
                       tolerance::of("merge_moments: mean", type)));
          REQUIRE(near((*got.m2)[c], {channel.m2, channel.m2},
                       m2_limit(type, parts, channel, c)));
        }
      }
}

TEST_CASE("the merged moments of any split are those of the whole batch") {
  for (auto type : all_types) {
    tensor_layout layout{type, {24, 5, 30}, {}, 150, {}};
    tensor x{layout, random_values(layout.shape, 7, 3, 2)};
    auto stored = statistics_type(type);
    auto whole = moments_of(x, stored);
    for (const auto& cuts :
         std::vector<std::vector<std::int64_t>>{{0, 12, 24},
                                                {0, 1, 24},
                                                {0, 0, 5, 5, 17, 24},
                                                {0, 6, 12, 18, 24}}) {
      std::vector<part> parts;
      for (std::size_t i = 1; i < cuts.size(); ++i) {
        auto some = samples(x, cuts[i - 1], cuts[i]);
        parts.emplace_back(stored, 5);
        scratch_memory scratch{batch_moments_workspace(some.layout())};
        batch_moments({}, some, parts.back().view, scratch.get());
      }
      auto got = merged(views(parts));
      CHECK(got.view.count == whole.view.count);
      for (std::int64_t c = 0; c < 5; ++c) {
        auto mean = (*whole.mean)[c];
        auto m2 = (*whole.m2)[c];
        auto scale = std::abs(mean) + std::sqrt(m2 / 720);
        CHECK(near((*got.mean)[c], {mean, scale},
                   tolerance::of("batch_moments: mean", type)
                       + tolerance::of("merge_moments: mean", type)));
        CHECK(near((*got.m2)[c], {m2, m2},
                   tolerance::of("batch_moments: m2", type)
                       + tolerance::of("merge_moments: m2", type)));
      }
    }
  }
}

TEST_CASE(
    "aligned groups of a power of two, merged first, give the same bits") {
  for (auto type : {dtype::float32, dtype::float64})
    for (unsigned count : {2U, 4U, 7U, 16U, 23U, 100U})
      for (std::size_t group : {2U, 4U, 8U}) {
        INFO(to_string(type), ", ", count, " parts in groups of ", group);
        auto parts = random_parts(type, 9, count);
        auto all = views(parts);
        std::vector<part> groups;
        for (std::size_t i = 0; i < all.size(); i += group)
          groups.push_back(merged(
              std::span{all}.subspan(i, std::min(group, all.size() - i))));
        CHECK(same_bits(merged(views(groups)), merged(all)));
      }
}

TEST_CASE("the tree merges neighbours first, not one part after the other") {
  // 2^24 + 1 is no float32: only (a + b) + (c + d) keeps the small ones.
  std::vector<part> parts;
  for (auto m2 : {0x1p24, 1.0, 1.0, 1.0})
    parts.emplace_back(dtype::float32, 1, std::vector{0.0}, std::vector{m2});
  auto got = merged(views(parts));
  CHECK((*got.m2)[0] == 0x1p24 + 2);
}

TEST_CASE("parts of count 0 change no bit, whatever they hold") {
  auto some = random_parts(dtype::float32, 5, 6);
  some.erase(std::remove_if(some.begin(), some.end(),
                            [](auto& p) { return p.view.count == 0; }),
             some.end());
  auto nan = std::numeric_limits<double>::quiet_NaN();
  auto pair = std::vector<const_moments_view>{some[0].view, some[1].view};
  auto expected = merged(pair);
  part empty{dtype::float32, 0, std::vector(5, nan), std::vector(5, nan)};
  const_moments_view nothing{0, nullptr, nullptr, 5, dtype::float32, {}};
  for (const auto& parts : std::vector<std::vector<const_moments_view>>{
           {empty.view, some[0].view, some[1].view},
           {some[0].view, empty.view, some[1].view},
           {some[0].view, some[1].view, empty.view, nothing},
           {nothing, empty.view, nothing, some[0].view, empty.view, nothing,
            empty.view, nothing, some[1].view}})
    CHECK(same_bits(merged(parts), expected));
}

TEST_CASE("a merge of nothing but empty parts writes no moments") {
  const_moments_view nothing{0, nullptr, nullptr, 5, dtype::float32, {}};
  part out{dtype::float32, 5};
  out.view.count = 9;
  merge_moments({}, std::vector{nothing, nothing}, out.view);
  CHECK(out.view.count == 0);
  CHECK(out.mean->untouched());
  CHECK(out.m2->untouched());
}

TEST_CASE("the result of a merge may replace the first part") {
  auto parts = random_parts(dtype::float64, 70, 5);
  auto expected = merged(views(parts));
  auto inputs = views(parts);
  merge_moments({}, inputs, parts[0].view);
  CHECK(same_bits(parts[0], expected));
}

TEST_CASE("NaN and infinity stay in their channel when moments are merged") {
  auto parts = random_parts(dtype::float32, 70, 5);
  auto expected = merged(views(parts));
  auto mean = parts[2].mean->get();
  mean[33] = std::numeric_limits<double>::infinity();
  *parts[2].mean = channel_array{dtype::float32, mean};
  parts[2].view.mean = parts[2].mean->data();
  auto got = merged(views(parts));
  CHECK_FALSE(std::isfinite((*got.m2)[33]));
  for (std::int64_t c = 0; c < 70; ++c)
    if (c != 33) {
      REQUIRE((*got.mean)[c] == (*expected.mean)[c]);
      REQUIRE((*got.m2)[c] == (*expected.m2)[c]);
    }
}

TEST_CASE("finalize gives normalizing constants and running statistics") {
  for (auto type : {dtype::float32, dtype::float64})
    for (auto mode : {eps_mode::plus, eps_mode::clamp})
      for (auto [channels, count] :
           {std::pair{1, 2}, {37, 3}, {64, 1000}, {193, 1000}}) {
        auto total = random_part(type, channels, count, 5);
        auto old_mean = rounded(type, random_channels(channels, 8, -2, 2));
        auto old_var = rounded(type, random_channels(channels, 9, 0, 4));
        channel_array mean{type, channels};
        channel_array inv_std{type, channels};
        channel_array running_mean{type, old_mean};
        channel_array running_var{type, old_var};
        finalize_options options{.eps = 0.5, .mode = mode, .momentum = 0.3};
        finalize_moments({}, total.view, options, mean.data(), inv_std.data(),
                         {running_mean.data(), running_var.data()});
        auto tolerance = tolerance::of("finalize_moments", type);
        for (std::int64_t c = 0; c < channels; ++c) {
          auto m2 = real((*total.m2)[c]);
          auto var = m2 / real(count);
          auto guarded =
              mode == eps_mode::plus ? var + 0.5L : std::max(var, real(0.5L));
          auto want = 1 / std::sqrt(guarded);
          REQUIRE(mean[c] == (*total.mean)[c]);
          REQUIRE(near(inv_std[c], {want, want}, tolerance));
          auto i = std::size_t(c);
          auto batch = real((*total.mean)[c]);
          REQUIRE(near(running_mean[c],
                       {0.7L * real(old_mean[i]) + 0.3L * batch,
                        std::abs(real(old_mean[i])) + std::abs(batch)},
                       tolerance));
          auto running = 0.7L * real(old_var[i]) + 0.3L * m2 / real(count - 1);
          REQUIRE(near(running_var[c], {running, running}, tolerance));
        }
        CHECK(mean.guards_intact());
        CHECK(inv_std.guards_intact());
        CHECK(running_mean.guards_intact());
        CHECK(running_var.guards_intact());
      }
}

TEST_CASE(
    "finalize may write over the moments and needs no running statistics") {
  auto total = random_part(dtype::float32, 150, 50, 3);
  channel_array mean{dtype::float32, 150};
  channel_array inv_std{dtype::float32, 150};
  finalize_moments({}, total.view, {}, mean.data(), inv_std.data(), {});
  finalize_moments({}, total.view, {}, total.mean->data(), total.m2->data(),
                   {});
  CHECK(total.mean->get() == mean.get());
  CHECK(total.m2->get() == inv_std.get());
}

TEST_CASE("a total count of 1 or 0 makes no NaN and no running variance") {
  for (std::int64_t count : {0, 1}) {
    auto bad = count == 0 ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    part total{dtype::float32, count, std::vector{4.0}, std::vector{bad}};
    channel_array mean{dtype::float32, 1};
    channel_array inv_std{dtype::float32, 1};
    channel_array running_mean{dtype::float32, std::vector{2.0}};
    channel_array running_var{dtype::float32, std::vector{3.0}};
    finalize_options options{.eps = 0.25, .momentum = 0.5};
    finalize_moments({}, total.view, options, mean.data(), inv_std.data(),
                     {running_mean.data(), running_var.data()});
    CHECK(mean[0] == (count == 0 ? 0 : 4));
    CHECK(inv_std[0] == 2);
    CHECK(running_mean[0] == (count == 0 ? 2 : 3));
    CHECK(running_var[0] == 3);
  }
}

TEST_CASE("a deviation that was clamped is found again, whatever eps") {
  int missed = 0;
  for (int i = 1; i <= 1000; ++i) {
    auto eps = 1e-5 * i;
    const float zero = 0;
    float mean = 0, inv_std = 0, sum = 1;
    finalize_moments({}, {2, &zero, &zero, 1, dtype::float32, {}},
                     {.eps = eps, .mode = eps_mode::clamp}, &mean, &inv_std,
                     {});
    clear_clamped({}, &inv_std, eps, 1, dtype::float32, &sum);
    missed += sum == 0 ? 0 : 1;
  }
  CHECK(missed == 0);
}

TEST_CASE("a momentum of 1 / k averages k batches") {
  channel_array running_mean{dtype::float64, std::vector{0.0}};
  channel_array running_var{dtype::float64, std::vector{1.0}};
  auto sum_of_means = 0.0;
  auto sum_of_variances = 0.0;
  for (int k = 1; k <= 5; ++k) {
    part total{dtype::float64, 11, std::vector{k * 1.5}, std::vector{k * 7.0}};
    sum_of_means += k * 1.5;
    sum_of_variances += k * 0.7;
    channel_array mean{dtype::float64, 1};
    channel_array inv_std{dtype::float64, 1};
    finalize_moments({}, total.view, {.momentum = 1.0 / k}, mean.data(),
                     inv_std.data(), {running_mean.data(), running_var.data()});
    CHECK(running_mean[0] == doctest::Approx(sum_of_means / k));
    CHECK(running_var[0] == doctest::Approx(sum_of_variances / k));
  }
}
