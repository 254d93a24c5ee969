// How a kind of CPU is treated changes time alone.

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/moments.hpp"
#include "tests/kernels/cases.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// What all operations make of a tensor, in one array.
std::vector<double> results_of(const layout_case& one) {
  const auto& layout = one.layout;
  auto count = layout.shape.channels;
  auto type = statistics_type(layout.type);
  tensor x{layout, random_values(layout.shape, 80, 0.5, 2), one.skip};
  tensor dy{layout, random_values(layout.shape, 81), one.skip};
  tensor y{layout, one.skip};
  tensor dx{layout, one.skip};
  std::vector<channel_array> arrays;
  for (auto seed = 82U; seed < 88; ++seed)
    arrays.emplace_back(type, random_channels(count, seed, 0.5, 2));
  auto at = [&](std::size_t i) { return arrays[i].data(); };
  channel_parameters parameters{at(0), at(1), nullptr, nullptr};
  scratch_memory forward{batch_moments_workspace(layout)};
  moments_view moments{-1, at(2), at(3), count, type, {}};
  batch_moments({}, x.view(), moments, forward.get());
  normalize({}, x.view(), parameters, y.view());
  scratch_memory backward{backward_reduce_workspace(layout)};
  backward_reduce({}, dy.view(), x.view(), parameters, nullptr,
                  {at(4), at(5), nullptr, nullptr}, backward.get());
  backward_input({}, dy.view(), x.view(), parameters,
                 {at(4), at(5), layout.shape.per_channel()}, nullptr,
                 dx.view());
  std::vector<double> all;
  for (const auto& array : arrays) {
    auto values = array.get();
    all.insert(all.end(), values.begin(), values.end());
  }
  for (const auto* out : {&y, &dx}) {
    auto values = out->get();
    values.for_each(
        [&](auto n, auto c, auto s) { all.push_back(values.at(n, c, s)); });
  }
  return all;
}

void check_bits(const layout_case& one) {
  INFO(describe(one.layout));
  std::set<std::vector<double>> results;
  for_each_cpu([&] { results.insert(results_of(one)); });
  CHECK(results.size() == 1);
}

} // namespace

TEST_CASE("each operation gives the same bits on each kind of CPU") {
  for (auto type : {dtype::float32, dtype::bfloat16}) {
    for (const auto& shape : small_shapes)
      for (const auto& one : layouts_of(type, shape))
        check_bits(one);
    for (const auto& one : layouts_of(type, {4, 1030, 151}))
      check_bits(one);
    for (const auto& one : far_apart(type))
      check_bits(one);
  }
}
