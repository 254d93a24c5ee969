// The CUDA kernels, run thread by thread on the host.

#include "tests/kernels/cuda_emulation.hpp"
#include "tests/kernels/tolerance.hpp"

#include <cmath>

static syncnorm::testing::backend& backend_under_test() {
  static syncnorm::testing::emulated_backend ops;
  return ops;
}

#include "tests/kernels/cuda_suite.hpp"

namespace {

using float_moments = cuda::moments_of<float, float, 4>;

/// Whether `size` and -`size` in equal numbers have the moments `got`.
bool are_moments_of(float size, const cuda::counted<float_moments>& got) {
  auto want = double(got.count) * double(size) * double(size);
  auto limit = tolerance::of("batch_moments: m2", dtype::float32);
  return std::abs(double(got.state.m2) - want) <= limit * want;
}

/// Of tensors all samples of which are the same memory.
cuda::sample_index one_for_all(const tensor_shape& shape) {
  return {cuda::divisor{shape.channels * shape.spatial}, false};
}

} // namespace

// Channels so many that a block might do for each, all samples in the same
// memory, and one channel of it.

TEST_CASE("merges that round to one side do not add up over large planes") {
  constexpr tensor_shape shape{2048, 300, 4096};
  auto plan =
      cuda::plan_reduction(memory_format::channels_first, shape, 4, true, true);
  alignas(16) static float x[shape.spatial];
  for (auto size : {0.3f, 0.6f, 0.7f, 0.9f}) {
    for (std::int64_t s = 0; s < shape.spatial; ++s)
      x[s] = s % 2 == 0 ? size : -size;
    std::vector<math::mean_m2<float>> unused(std::size_t(plan.partials()));
    cuda::plane_task<float_moments> task{{one_for_all(shape),
                                          {x, -shape.channels * shape.spatial},
                                          nullptr,
                                          nullptr,
                                          shape.spatial},
                                         plan,
                                         unused.data()};
    cuda::counted<float_moments> total;
    for (std::int64_t split = 0; split < plan.splits; ++split) {
      std::vector<cuda::counted<float_moments, int>> shares;
      for (int thread = 0; thread < cuda::block_threads; ++thread)
        shares.push_back(task.share(0, split, thread));
      auto run = reduce_block(std::move(shares));
      total =
          cuda::merge_counted<float_moments>{}(total, {run.count, run.state});
    }
    REQUIRE(total.count == shape.per_channel());
    CHECK(are_moments_of(size, total));
  }
}

TEST_CASE("merges that round to one side do not add up over many rows") {
  constexpr tensor_shape shape{4096, 128 * 600, 16};
  auto plan =
      cuda::plan_reduction(memory_format::channels_last, shape, 4, false, true);
  std::vector<float> x(std::size_t(shape.channels * shape.spatial));
  auto board = std::make_unique<cuda::row_board<float_moments>>();
  for (auto size : {0.3f, 0.6f, 0.7f, 0.9f}) {
    // A thread reads every `tile_height`-th row.
    auto period = std::size_t(shape.channels * plan.tile_height);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = i / period % 2 == 0 ? size : -size;
    std::vector<math::mean_m2<float>> unused(std::size_t(plan.partials()));
    cuda::row_task<float_moments> task{
        {one_for_all(shape),
         {x.data(), -shape.channels * shape.spatial},
         nullptr,
         nullptr,
         1},
        plan,
        unused.data()};
    cuda::counted<float_moments> total;
    for (std::int64_t split = 0; split < plan.splits; ++split) {
      (void) reduce_rows(task, 0, split, *board);
      total = cuda::merge_counted<float_moments>{}(
          total, {plan.count_of(split), board->states[0].value});
    }
    REQUIRE(total.count == shape.per_channel());
    CHECK(are_moments_of(size, total));
  }
}

TEST_CASE("of more partial results of a channel than a block loads at once "
          "none is lost") {
  constexpr tensor_shape shape{1, 3, 720000};
  auto plan =
      cuda::plan_reduction(memory_format::channels_last, shape, 4, true, true);
  REQUIRE(plan.splits * plan.shape.fold > 4 * cuda::merge_threads);
  host_tensor x{{dtype::float32, shape, memory_format::channels_last,
                 3 * shape.spatial, backend_under_test().where()},
                0};
  // In the runs of a channel the mean grows.
  constexpr double step = 1.0 / 65536;
  for (std::int64_t c = 0; c < 3; ++c)
    for (std::int64_t s = 0; s < shape.spatial; ++s)
      x.set(0, c, s, double(c) + step * double(s));
  auto n = double(shape.spatial);
  auto mean = step * (n - 1) / 2;
  auto m2 = step * step * n * (n * n - 1) / 12;
  auto found = run_moments(backend_under_test(), x, dtype::float32);
  // Some roundings of float32 in each merge.
  constexpr double tolerance = 1e-5;
  for (std::size_t c = 0; c < 3; ++c) {
    CHECK(std::abs(found.mean[c] - double(c) - mean) <= tolerance * mean);
    CHECK(std::abs(found.m2[c] - m2) <= tolerance * m2);
  }
}

TEST_CASE("of equal values in a channel the mean is that value, however far "
          "from other channels'") {
  auto where = backend_under_test().where();
  for (auto format :
       {memory_format::channels_first, memory_format::channels_last})
    for (auto shape : {tensor_shape{2, 5, 33}, {2, 3, 40000}}) {
      host_tensor x{{dtype::float32, shape, format,
                     shape.channels * shape.spatial, where},
                    0};
      auto value = [](std::int64_t c) {
        return double(c == 0 ? 1e6f : 0.1f * float(c));
      };
      x.for_each([&](auto n, auto c, auto s) { x.set(n, c, s, value(c)); });
      auto found = run_moments(backend_under_test(), x, dtype::float32);
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        CHECK(found.mean[std::size_t(c)] == value(c));
        CHECK(found.m2[std::size_t(c)] == 0);
      }
    }
}

// Not so on a CPU (docs/numerics.md).
TEST_CASE("the mean of values near the largest is finite, as they are") {
  auto where = backend_under_test().where();
  for (auto format :
       {memory_format::channels_first, memory_format::channels_last})
    for (auto size : {3e37, 1e38}) {
      host_tensor x{{dtype::float32, {1, 8, 8192}, format, 8 * 8192, where}, 0};
      for (int c = 0; c < 8; ++c)
        for (int s = 0; s < 8192; ++s)
          x.set(0, c, s, s % 2 == 0 ? size : -size);
      auto found = run_moments(backend_under_test(), x, dtype::float32);
      for (std::size_t c = 0; c < 8; ++c) {
        CHECK(std::abs(found.mean[c]) <= 1e-3 * size);
        CHECK(found.m2[c] == double(INFINITY));
      }
    }
}

TEST_CASE("more parts than two launches take are refused, with nothing "
          "written") {
  std::vector<double> one{1}, out{7}, second{8};
  std::vector<const_moments_view> parts(
      2049, {1, one.data(), one.data(), 1, dtype::float64, {}});
  moments_view total{0, out.data(), second.data(), 1, dtype::float64, {}};
  std::vector<const void*> arrays(2049, one.data());
  auto& ops = backend_under_test();
  auto check = [](const std::string& call, const std::string& verb, auto f) {
    try {
      f();
      FAIL("nothing was thrown");
    } catch (const error& e) {
      CHECK(e.code() == errc::invalid_argument);
      CHECK(e.what()
            == call + ": parts: expected at most 2048 on a CUDA device (" + verb
                   + " aligned groups of a power of two first), got 2049");
    }
  };
  check("merge_moments", "merge", [&] { ops.merge_moments(parts, total); });
  check("add_arrays", "add",
        [&] { ops.add_arrays(arrays, 1, dtype::float64, out.data()); });
  CHECK(out[0] == 7);
  CHECK(second[0] == 8);
}
