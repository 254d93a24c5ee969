#pragma once

// The rules that every backend must follow, as test cases for one of them: the
// includer defines `backend& backend_under_test()` first.

#include "tests/kernels/cuda_merge_cases.hpp"
#include "tests/kernels/cuda_pass_cases.hpp"
#include "tests/kernels/cuda_reduce_cases.hpp"
#include "tests/kernels/cuda_sum_cases.hpp"

#include <random>

namespace {

using namespace syncnorm;
using namespace syncnorm::testing;

/// One channel in so many runs that a whole block merges them, by vectors, for
/// each dtype.
template <class F>
void for_many_runs(const F& f) {
  tensor_shape shape{1, 1, 560000};
  for (auto type :
       {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16})
    f(placement{{type, shape, memory_format::channels_first, shape.spatial,
                 backend_under_test().where()},
                0});
}

/// Options that differ from call to call are random, but the same in every run:
/// taken in turn, one kind of placement could get the same ones each time.
template <class F>
void for_all_placements(const F& f) {
  auto where = backend_under_test().where();
  for (const auto& shape : edge_shapes())
    for_each_placement(shape, where, f);
  for (const auto& shape : split_shapes())
    for (auto type : {dtype::float32, dtype::bfloat16})
      for (auto format :
           {memory_format::channels_first, memory_format::channels_last})
        f(placement{
            {type, shape, format, shape.channels * shape.spatial, where}, 0});
  for_many_runs(f);
}

TEST_CASE("moments are right for every dtype, layout and size") {
  for_all_placements([](const placement& where) {
    check_moments(backend_under_test(), where, 3, 1);
  });
}

TEST_CASE("moments come in float64 on request") {
  auto check = [](const placement& where) {
    check_moments(backend_under_test(), where, 3, 1, dtype::float64);
  };
  for (auto shape : {tensor_shape{3, 5, 33}, {4, 16, 32}, {3, 6, 12544}})
    for_each_placement(shape, backend_under_test().where(), check);
  for_many_runs(check);
}

TEST_CASE("moments keep the variance of values far from zero") {
  auto where = backend_under_test().where();
  for (auto mean : {10.0, 1e3, 1e4})
    for (auto shape : {tensor_shape{8, 3, 10000}, {64, 33, 49}})
      for (auto format :
           {memory_format::channels_first, memory_format::channels_last})
        check_moments(backend_under_test(),
                      {{dtype::float32, shape, format,
                        shape.channels * shape.spatial, where},
                       0},
                      mean, 1);
}

TEST_CASE("a first value far from all others does not cost the variance") {
  auto where = backend_under_test().where();
  for (auto format :
       {memory_format::channels_first, memory_format::channels_last}) {
    host_tensor x{{dtype::float32, {2, 3, 40000}, format, 120000, where}, 0};
    x.fill_noise(1, 1e4, 1);
    for (int c = 0; c < 3; ++c)
      x.set(0, c, 0, 0);
    auto expected = moments_by_definition(x);
    auto found = run_moments(backend_under_test(), x, dtype::float32);
    for (std::size_t c = 0; c < 3; ++c)
      check_near(found.m2[c], expected.m2[c], 1e-4 * expected.m2[c], "m2");
  }
}

TEST_CASE("a NaN or an infinity stays in its channel") {
  auto where = backend_under_test().where();
  for (auto format :
       {memory_format::channels_first, memory_format::channels_last})
    for (auto spoiler : {double(NAN), double(INFINITY)})
      for (std::int64_t spatial : {1, 6, 4000}) {
        host_tensor x{
            {dtype::float32, {4, 9, spatial}, format, 9 * spatial, where}, 0};
        x.fill_noise(1, 3, 1);
        auto expected = moments_by_definition(x);
        x.set(2, 4, spatial / 2, spoiler);
        auto found = run_moments(backend_under_test(), x, dtype::float32);
        for (std::size_t c = 0; c < 9; ++c) {
          CHECK(std::isfinite(found.m2[c]) == (c != 4));
          if (c != 4)
            CHECK(found.m2[c] == doctest::Approx(expected.m2[c]));
        }
      }
}

TEST_CASE("finite values whose squares are too large make M2 infinite, not "
          "NaN") {
  auto where = backend_under_test().where();
  for (auto format :
       {memory_format::channels_first, memory_format::channels_last}) {
    host_tensor x{{dtype::float32, {2, 3, 4096}, format, 3 * 4096, where}, 0};
    x.fill_noise(1, 3, 1);
    for (int n = 0; n < 2; ++n)
      for (int s = 0; s < 4096; ++s)
        x.set(n, 1, s, n == 0 && s == 0 ? 0 : 1e20);
    auto found = run_moments(backend_under_test(), x, dtype::float32);
    CHECK(found.m2[1] == double(INFINITY));
    CHECK(std::isfinite(found.m2[0]));
  }
}

TEST_CASE("normalize gives its formula for every dtype, layout and size") {
  std::mt19937 random;
  for_all_placements([&](const placement& where) {
    auto turn = random();
    pass_options options;
    options.affine = (turn & 1) == 0;
    options.residual = (turn & 2) != 0;
    options.relu = (turn & 4) != 0;
    options.mask = options.relu && (turn & 8) != 0;
    options.in_place = (turn & 16) != 0;
    check_normalize(backend_under_test(), where, options);
  });
}

TEST_CASE("normalize writes the whole mask, whatever the vector width") {
  pass_options options;
  options.relu = options.mask = true;
  for (auto shape : {tensor_shape{3, 5, 7}, {4, 16, 49}, {2, 24, 8}, {9, 3, 1}})
    for_each_placement(shape, backend_under_test().where(),
                       [&](const placement& where) {
                         check_normalize(backend_under_test(), where, options);
                       });
}

TEST_CASE("tensors of one call may have different gaps between samples") {
  for (auto shape : {tensor_shape{3, 5, 7}, {4, 16, 32}, {9, 33, 1}})
    for_each_placement(
        shape, backend_under_test().where(), [&](const placement& where) {
          pass_options options;
          options.spread_out = true;
          check_normalize(backend_under_test(), where, options);
          check_backward_input(backend_under_test(), where, options);
          options.residual = options.relu = options.mask = true;
          check_normalize(backend_under_test(), where, options);
          check_backward_input(backend_under_test(), where, options);
          check_backward_reduce(backend_under_test(), where, true, {true, true},
                                16);
          check_backward_reduce(backend_under_test(), where, true, {true, true},
                                5);
        });
}

TEST_CASE(
    "normalize_eval takes its inverse standard deviation from the variance") {
  pass_options options;
  options.eval = true;
  for (auto mode : {eps_mode::plus, eps_mode::clamp})
    for (auto shape : {tensor_shape{3, 5, 49}, {4, 16, 32}}) {
      options.mode = mode;
      for_each_placement(
          shape, backend_under_test().where(), [&](const placement& where) {
            check_normalize(backend_under_test(), where, options);
          });
    }
}

TEST_CASE("backward_reduce is right for every dtype, layout and size") {
  std::mt19937 random;
  for_all_placements([&](const placement& where) {
    auto turn = random();
    auto both = (turn & 2) != 0;
    check_backward_reduce(backend_under_test(), where, (turn & 1) != 0,
                          {both, both});
  });
}

TEST_CASE("backward_reduce gives either gradient without the other") {
  auto where = backend_under_test().where();
  for (auto format :
       {memory_format::channels_first, memory_format::channels_last})
    for (auto shape : {tensor_shape{3, 5, 7}, {2, 3, 40000}}) {
      placement one{{dtype::float32, shape, format,
                     shape.channels * shape.spatial, where},
                    0};
      check_backward_reduce(backend_under_test(), one, false, {true, false});
      check_backward_reduce(backend_under_test(), one, false, {false, true});
    }
}

TEST_CASE("dy and x of backward_reduce may lie in memory in different ways") {
  for (auto shape : {tensor_shape{3, 5, 16}, {4, 16, 32}, {9, 32, 1}})
    for_each_placement(
        shape, backend_under_test().where(), [](const placement& where) {
          auto dense = where.layout.shape.channels * where.layout.shape.spatial;
          check_backward_reduce(backend_under_test(), where, true, {true, true},
                                dense - where.layout.sample_stride);
          check_backward_reduce(backend_under_test(), where, true, {true, true},
                                0, where.offset == 0 ? 1 : -1);
        });
}

TEST_CASE("what the mask leaves out counts nothing, even if it is no number") {
  auto where = backend_under_test().where();
  for (auto format :
       {memory_format::channels_first, memory_format::channels_last})
    for (auto spoiler : {double(NAN), double(INFINITY)})
      for (std::int64_t spatial : {7, 64})
        check_masked(
            backend_under_test(),
            {dtype::float32, {2, 8, spatial}, format, 8 * spatial, where},
            spoiler);
}

TEST_CASE("backward_input gives its formula for every dtype, layout and size") {
  std::mt19937 random;
  for_all_placements([&](const placement& where) {
    auto turn = random();
    pass_options options;
    options.affine = (turn & 1) == 0;
    options.residual = (turn & 2) != 0;
    options.mask = (turn & 4) != 0;
    options.in_place = (turn & 8) != 0;
    options.eval = (turn & 16) != 0;
    options.mode = (turn & 32) != 0 ? eps_mode::clamp : eps_mode::plus;
    check_backward_input(backend_under_test(), where, options);
  });
}

TEST_CASE("merged moments are those of all values, also by groups") {
  for (auto type : {dtype::float32, dtype::float64})
    for (int replicas : {1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 100, 1024})
      for (int group : {2, 8})
        check_merge(backend_under_test(), type, 19, replicas, group);
  check_merge(backend_under_test(), dtype::float32, 3, 1025, 4);
  check_merge(backend_under_test(), dtype::float32, 3, 2048, 64);
  check_merge(backend_under_test(), dtype::float32, 300, 4, 2);
}

TEST_CASE("a part of the first of two launches counts, whether it is of one "
          "value or of billions") {
  for (auto type : {dtype::float32, dtype::float64})
    for (auto count : {std::int64_t{1}, std::int64_t{1} << 32}) {
      placed_array mean{backend_under_test(), type, {3}};
      placed_array other{backend_under_test(), type, {5}};
      placed_array m2{backend_under_test(), type, {0}};
      auto part = [&](std::int64_t of, const placed_array& from) {
        return const_moments_view{
            of, from.data(), m2.data(), 1, type, backend_under_test().where()};
      };
      std::vector<const_moments_view> parts(1025, part(0, mean));
      parts[7] = part(count, mean);
      parts[1024] = part(count, other);
      auto found = run_merge(backend_under_test(), parts);
      CHECK(found.count == 2 * count);
      CHECK(found.mean[0] == 4);
      CHECK(found.m2[0] == 2 * double(count));
    }
}

TEST_CASE("moments may be merged into the first part") {
  placed_parts parts{backend_under_test(), dtype::float32, 33, 40};
  auto expected = run_merge(backend_under_test(), parts.views);
  moments_view out{0,
                   const_cast<void*>(parts.views[0].mean),
                   const_cast<void*>(parts.views[0].m2),
                   33,
                   dtype::float32,
                   backend_under_test().where()};
  backend_under_test().merge_moments(parts.views, out);
  CHECK(out.count == expected.count);
  CHECK(parts.means[0]->read() == expected.mean);
  CHECK(parts.m2s[0]->read() == expected.m2);
}

TEST_CASE("finalize_moments keeps its formulas at count 0, 1 and more") {
  for (auto type : {dtype::float32, dtype::float64})
    for (std::int64_t count : {0, 1, 2, 1000})
      for (auto mode : {eps_mode::plus, eps_mode::clamp})
        for (auto momentum : {0.0, 0.1, 1.0})
          for (auto running : {false, true})
            check_finalize(backend_under_test(), type, count,
                           {1e-5, mode, momentum}, running);
}

TEST_CASE("add_arrays follows the tree of merge_moments, bit for bit") {
  for (auto type : {dtype::float32, dtype::float64})
    for (int parts : {1, 2, 3, 5, 15, 16, 17, 31, 33, 100, 1024, 1025, 2048})
      for (auto in_place : {false, true})
        check_add(backend_under_test(), type, 19, parts, in_place);
  check_add(backend_under_test(), dtype::float32, 1000, 4, false);
}

TEST_CASE("the sum of nothing is 0, and nothing changes no sign") {
  for (auto type : {dtype::float32, dtype::float64})
    for (std::size_t parts : {1, 2, 17, 1025})
      check_add_nothing(backend_under_test(), type, parts);
}

TEST_CASE("round_array rounds each element to the nearest float32") {
  check_round(backend_under_test(), 0);
  check_round(backend_under_test(), 1000);
}

TEST_CASE("clear_clamped clears the channels whose variance was clamped, and "
          "no other") {
  for (auto type : {dtype::float32, dtype::float64})
    check_clear(backend_under_test(), type);
}

} // namespace
