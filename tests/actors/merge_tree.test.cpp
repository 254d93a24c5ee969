// Sums along the tree, without any actor.

#include "tests/actors/relay_tree.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// What a relay of the replicas `first` to `first + count - 1` sends, some of
/// whom stand behind relays of their own: random ranges.
parts relayed(std::mt19937& random, std::int64_t first, std::int64_t count,
              const std::function<bool(std::int64_t)>& present) {
  parts got;
  for (auto at = first; at < first + count;) {
    auto n = std::min(1 + std::int64_t(random()) % count, first + count - at);
    if (n == count || random() % 3 == 0) {
      for (auto i = at; i < at + n; ++i)
        if (present(i))
          got.push_back({i, block_of(i)});
    } else {
      auto below = relayed(random, at, n, present);
      got.insert(got.end(), below.begin(), below.end());
    }
    at += n;
  }
  auto nodes = detail::tree_blocks(first, count);
  CHECK(double(nodes.size()) <= 2 * std::log2(double(count)) + 2);
  nodes.push_back(first + count);
  parts result;
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
    parts some;
    for (const auto& x : got)
      if (x.identifier >= nodes[i] && x.identifier < nodes[i + 1])
        some.push_back(x);
    if (!some.empty())
      result.push_back({nodes[i], merge_blocks(some)});
  }
  return result;
}

} // namespace

TEST_CASE("any grouping of neighbours into relays, of any depth and with "
          "replicas missing, adds with the same bits") {
  std::mt19937 random{3};
  for (int trial = 0; trial < 500; ++trial) {
    auto count = 1 + std::int64_t(random() % 70);
    auto seed = random();
    auto present = [seed](std::int64_t i) {
      return i == 0 || (seed >> (i % 32) & 7) != 0;
    };
    parts all;
    for (std::int64_t i = 0; i < count; ++i)
      if (present(i))
        all.push_back({i, block_of(i)});
    auto tree = relayed(random, 0, count, present);
    CHECK(merge_blocks(tree) == merge_blocks(all));
  }
}

TEST_CASE("a sum in float64 of arrays in float32 has the bits of the sum of "
          "the same arrays in float64") {
  std::mt19937 random{5};
  std::uniform_real_distribution<float> some{-1, 1};
  constexpr std::size_t size = 700;
  for (std::size_t count : {1U, 2U, 3U, 4U, 5U, 7U, 8U, 33U}) {
    std::vector<std::vector<float>> narrow(count, std::vector<float>(size));
    std::vector<std::vector<double>> wide;
    std::vector<identified<std::span<const float>>> narrow_parts;
    std::vector<identified<std::span<const double>>> wide_parts;
    wide.reserve(count);
    std::int64_t id = 0;
    for (auto& values : narrow) {
      for (auto& x : values)
        x = std::ldexp(some(random), int(random() % 60));
      wide.emplace_back(values.begin(), values.end());
      narrow_parts.push_back({id, values});
      wide_parts.push_back({id, wide.back()});
      id += 1 + std::int64_t(random() % 3);
    }
    std::vector<double> sum(size);
    std::vector<double> expected(size);
    add_tree(std::move(narrow_parts), std::span{sum});
    add_tree(std::move(wide_parts), std::span{expected});
    CHECK(sum == expected);
  }
}

TEST_CASE("a sum along the tree passes by empty arrays and refuses others of "
          "another size") {
  block two{1, 2};
  std::vector<double> values(2);
  std::span sum{values};
  add_tree<double>({{0, {}}, {1, two.view()}, {4, two.view()}}, sum);
  CHECK(values == std::vector<double>{2, 4});
  add_tree<double>({{0, {}}}, sum);
  CHECK(values == std::vector<double>{0, 0});
  block three{1, 2, 3};
  CHECK_THROWS_WITH_AS(
      add_tree<double>({{1, two.view()}, {4, three.view()}}, sum),
      "replica 4 sent 3 elements, expected 2", error);
}
