#pragma once

// Checks of `add_arrays`, `round_array` and `clear_clamped`, for any backend.

#include "tests/kernels/cuda_placements.hpp"

#include <cmath>
#include <memory>

namespace syncnorm::testing {

/// The tree of `merge_moments` over float sums, by its definition: neighbours
/// at distance 1, then 2, then 4.
template <class Real>
std::vector<double> tree_sum(const std::vector<std::vector<double>>& parts) {
  std::vector<std::vector<Real>> sums;
  for (const auto& part : parts)
    sums.emplace_back(part.begin(), part.end());
  for (std::size_t distance = 1; distance < sums.size(); distance *= 2)
    for (std::size_t i = 0; i + distance < sums.size(); i += 2 * distance)
      for (std::size_t j = 0; j < sums[i].size(); ++j)
        sums[i][j] += sums[i + distance][j];
  return {sums[0].begin(), sums[0].end()};
}

/// The sum of `count` arrays, some of them null.
inline void check_add(backend& ops, dtype type, std::int64_t elements,
                      int count, bool in_place) {
  std::vector<std::unique_ptr<placed_array>> arrays;
  std::vector<std::vector<double>> values;
  std::vector<const void*> parts;
  for (int r = 0; r < count; ++r) {
    auto missing = r % 7 == 5;
    std::vector<double> part;
    for (std::int64_t i = 0; i < elements; ++i)
      part.push_back(missing ? 0
                             : noise(std::uint64_t(r + 3), std::uint64_t(i)));
    arrays.push_back(std::make_unique<placed_array>(ops, type, part));
    values.push_back(arrays.back()->read());
    parts.push_back(missing ? nullptr : arrays.back()->data());
  }
  placed_array out{ops, type, std::vector<double>(values[0].size(), NAN)};
  auto& target = in_place ? *arrays[0] : out;
  ops.add_arrays(parts, elements, type, target.data());
  auto expected = type == dtype::float64 ? tree_sum<double>(values)
                                         : tree_sum<float>(values);
  CHECK_MESSAGE(target.read() == expected,
                count << " parts of " << to_string(type));
}

/// Only null parts; and null parts beside -0, whose sign is kept.
inline void check_add_nothing(backend& ops, dtype type, std::size_t count) {
  placed_array out{ops, type, {NAN, NAN}};
  std::vector<const void*> parts(count, nullptr);
  ops.add_arrays(parts, 2, type, out.data());
  for (auto sum : out.read())
    CHECK((sum == 0 && !std::signbit(sum)));
  placed_array negative{ops, type, {-0.0, -0.0}};
  parts.back() = negative.data();
  ops.add_arrays(parts, 2, type, out.data());
  for (auto sum : out.read())
    CHECK((sum == 0 && std::signbit(sum)));
}

/// Halfway cases round to even, values beyond float32's range to infinity; also
/// `more` random values.
inline void check_round(backend& ops, std::size_t more) {
  std::vector<double> values{1 + 0x1p-24, 1 + 3 * 0x1p-24, -1e300,
                             NAN,         0x1p-149 * 0.75, 1 + 0x1.8p-24};
  std::vector<double> expected{1,   1 + 0x1p-22, -double(INFINITY),
                               NAN, 0x1p-149,    1 + 0x1p-23};
  for (std::size_t i = 0; i < more; ++i) {
    values.push_back(noise(1, i));
    expected.push_back(static_cast<float>(values.back()));
  }
  auto size = values.size();
  placed_array from{ops, dtype::float64, values};
  placed_array out{ops, dtype::float32, std::vector<double>(size + 1, 7)};
  ops.round_array(static_cast<const double*>(from.data()), std::int64_t(size),
                  static_cast<float*>(out.data()));
  auto found = out.read();
  CHECK(found[size] == 7);
  for (std::size_t i = 0; i < size; ++i)
    CHECK((found[i] == expected[i]
           || (std::isnan(found[i]) && std::isnan(expected[i]))));
}

/// Channels below, at and above the limit, and one with NaN.
inline void check_clear(backend& ops, dtype type) {
  constexpr double eps = 1e-3;
  auto limit = 1 / std::sqrt(eps);
  placed_array inv_std{ops, type, {limit / 2, limit, limit * 2, NAN, 1}};
  placed_array sums{ops, type, {1, 2, 3, 4, 5}};
  ops.clear_clamped(inv_std.data(), eps, 5, type, sums.data());
  CHECK(sums.read() == std::vector<double>{1, 0, 0, 4, 5});
}

} // namespace syncnorm::testing
