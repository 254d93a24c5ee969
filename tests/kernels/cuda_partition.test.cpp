#include "kernels/cuda/alignment.hpp"
#include "kernels/cuda/divisor.hpp"
#include "kernels/cuda/merge_partials.hpp"
#include "kernels/cuda/partition.hpp"
#include "kernels/cuda/plane_reduce.hpp"
#include "kernels/cuda/prepare_pass.hpp"
#include "kernels/cuda/prepare_reduction.hpp"
#include "kernels/cuda/rounds.hpp"
#include "kernels/cuda/row_reduce.hpp"
#include "kernels/cuda/row_tree.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::cuda;

namespace {

constexpr auto first_format = memory_format::channels_first;
constexpr auto last_format = memory_format::channels_last;
constexpr auto largest = std::numeric_limits<std::int64_t>::max();

/// Checks that the levels for `height` rows of threads lead to one partial
/// result of `rows` rows, and know of how many each is on the way.
template <int Most>
void check_tree(int height, int rows) {
  row_shares shares{rows, height};
  std::vector<int> counts;
  for (int i = 0; i < height; ++i)
    counts.push_back(i < rows ? (rows - i - 1) / height + 1 : 0);
  row_tree<Most>{height}.for_each_level([&](const auto& level) {
    REQUIRE(std::size_t(level.height) == counts.size());
    REQUIRE(level.next * level.radix >= level.height);
    for (int i = 0; i < level.height; ++i)
      REQUIRE(level.count_of(i, shares, height) == counts[std::size_t(i)]);
    // Merges count on it.
    REQUIRE(std::ranges::is_sorted(counts, std::ranges::greater{}));
    std::vector<int> merged(std::size_t(level.next));
    for (int i = 0; i < level.height; ++i)
      merged[std::size_t(i % level.next)] += counts[std::size_t(i)];
    counts = std::move(merged);
  });
  REQUIRE(counts == std::vector<int>{rows});
}

/// Calls `f` with the plan of many shapes, in every variant.
template <class F>
void for_each_plan(const F& f) {
  for (auto format : {first_format, last_format})
    for (std::int64_t n : {1, 2, 7, 64})
      for (std::int64_t c : {1, 2, 3, 4, 12, 31, 64, 129, 600, 5000})
        for (std::int64_t s : {1, 2, 8, 49, 196, 3136, 50176})
          for (std::size_t bytes : {2, 4, 8})
            for (auto dense : {false, true})
              for (auto aligned : {false, true})
                f(tensor_shape{n, c, s},
                  plan_reduction(format, {n, c, s}, bytes, dense, aligned));
}

using indices = std::vector<std::int64_t>;

/// A reduction that notes which vectors it is to load, and loads nothing.
template <int Width>
struct noting {
  static constexpr int width = Width;
  static constexpr int tensors = 1;

  using real = float;

  struct state {
    std::int64_t unused = 0;
  };

  struct constants {};

  using closing = constants;

  struct fetched {};

  template <int K>
  struct values {};

  sample_index samples;
  indices* seen = nullptr;

  [[nodiscard]] constants open(std::int64_t) const {
    return {};
  }
  [[nodiscard]] closing before_close(std::int64_t) const {
    return {};
  }
  template <bool>
  [[nodiscard]] fetched fetch(std::int64_t flat) const {
    seen->push_back(flat);
    return {};
  }
  template <int K>
  static void put(values<K>&, int, const fetched&, int, const constants&) {}
  template <int K>
  static void add(state&, int, const values<K>&, const constants&) {}
};

/// Checks what the first and the last thread of a block take of the first, the
/// last and some other run of the last channel's planes.
template <int Width>
void check_planes(const tensor_shape& shape) {
  auto plan = plan_reduction(first_format, shape, 16 / Width, false, Width > 1);
  REQUIRE(plan.width == Width);
  indices seen;
  std::byte unused[16];
  plane_task<noting<Width>> task{{{}, &seen}, plan, unused};
  auto channel = shape.channels - 1;
  auto per_plane = shape.spatial / Width;
  for (auto split :
       {std::int64_t{0}, per_plane / plan.chunk % plan.splits, plan.splits - 1})
    for (int thread : {0, block_threads - 1}) {
      indices expected;
      auto end = std::min((split + 1) * plan.chunk, plan.units);
      for (auto i = split * plan.chunk + thread; i < end; i += block_threads)
        expected.push_back((i / per_plane * shape.channels + channel)
                               * shape.spatial
                           + i % per_plane * Width);
      seen.clear();
      REQUIRE(task.share(channel, split, thread).count
              == int(expected.size()) * Width);
      REQUIRE(seen == expected);
    }
}

/// The same over rows, in the last tile.
template <int Width>
void check_rows(const tensor_shape& shape) {
  auto plan = plan_reduction(last_format, shape, 16 / Width, false, Width > 1);
  REQUIRE(plan.width == Width);
  REQUIRE(plan.shape.fold == 1);
  REQUIRE(plan.splits > 1);
  indices seen;
  std::byte unused[16];
  row_task<noting<Width>> task{{{}, &seen}, plan, unused};
  auto board = std::make_unique<row_board<noting<Width>>>();
  auto column = (plan.tiles - 1) * plan.tile_width * Width;
  for (auto split : {std::int64_t{0}, plan.splits - 1})
    for (int row : {0, plan.tile_height - 1}) {
      indices expected;
      auto end = std::min((split + 1) * plan.chunk, plan.units);
      for (auto i = split * plan.chunk + row; i < end; i += plan.tile_height)
        expected.push_back(i * shape.channels + column);
      seen.clear();
      auto place = task.place_of(plan.tiles - 1, split, 0, row);
      REQUIRE(task.share(place, *board) == int(expected.size()));
      REQUIRE(seen == expected);
    }
}

/// A reduction to the sum of partial results.
struct summing {
  using real = double;

  struct state {
    double sum = 0;
  };

  static state merge(const state& a, const state& b,
                     const math::merge_weights<double>&) {
    return {a.sum + b.sum};
  }
};

/// Checks that the threads for the second of two channels merge its partial
/// results, and know of how many elements these are; the last run is shorter.
void check_partials(std::int64_t splits, std::int64_t fold, int threads) {
  reduce_plan plan;
  plan.shape = {last_format, 1, 2 * fold, 5 * splits - 2, fold};
  plan.units = 5 * splits - 2;
  plan.chunk = 5;
  plan.splits = splits;
  std::vector<stored<summing::state>> partials(std::size_t(plan.partials()));
  double expected = 0;
  for (std::int64_t column = 0; column < 2 * fold; ++column)
    for (std::int64_t split = 0; split < splits; ++split) {
      auto i = column * splits + split;
      partials[std::size_t(i)].value.sum = double(i + 1);
      if (column % 2 == 1)
        expected += double(i + 1);
    }
  merge_partials_task<summing> task{{}, plan, partials.data()};
  double sum = 0;
  double count = 0;
  for (int thread = 0; thread < threads; ++thread) {
    auto place = task.place_of(1, 2, thread, threads);
    sum += task.share(place, 1, 2, thread, threads).sum;
    count += place.count;
  }
  REQUIRE(sum == expected);
  REQUIRE(count == double(plan.units * fold));
}

/// Checks that a thread loads each of its units once, in their order, and
/// nothing behind them.
template <int Flight, int Width>
void check_rounds(int left, int step) {
  int loads = 0;
  std::vector<int> added;
  auto fetch = [&] { return loads++; };
  auto add = [&](const auto& in) {
    added.insert(added.end(), std::begin(in), std::end(in));
  };
  add_in_rounds<Flight, Width>(left, step, fetch, add);
  auto expected = left > 0 ? (left - 1) / step + 1 : 0;
  REQUIRE(loads == expected);
  REQUIRE(added.size() == std::size_t(expected));
  for (int i = 0; i < expected; ++i)
    REQUIRE(added[std::size_t(i)] == i);
}

} // namespace

TEST_CASE("a divisor divides as the processor does, up to 2^63 - 1") {
  std::vector<std::int64_t> numbers{1, 2, 3, 5, 7, 10, 49, 641, 50176};
  for (int shift = 1; shift < 63; ++shift)
    for (std::int64_t near : {-1, 0, 1})
      numbers.push_back((std::int64_t{1} << shift) + near);
  numbers.push_back(largest - 1);
  numbers.push_back(largest);
  for (auto d : numbers) {
    if (d == 0)
      continue;
    divisor by{d};
    REQUIRE(by.value() == d);
    for (auto n : numbers)
      for (auto near : {n - 1, n, n / d * d, n / d * d - 1})
        if (near >= 0) {
          REQUIRE(by.quotient(near) == near / d);
          REQUIRE(by.remainder(near) == near % d);
        }
  }
}

TEST_CASE("without spatial elements both formats are rows, with one channel "
          "they are planes") {
  CHECK(canonical(first_format, {5, 7, 1}, false)
        == canonical(last_format, {5, 7, 1}, false));
  CHECK(canonical(last_format, {5, 1, 9}, true)
        == extents{first_format, 1, 1, 45});
  CHECK(canonical(last_format, {5, 7, 9}, true)
        == extents{last_format, 1, 7, 45});
  CHECK(canonical(last_format, {5, 7, 9}, false)
        == extents{last_format, 5, 7, 9});
  CHECK(canonical(first_format, {5, 7, 9}, true)
        == extents{first_format, 5, 7, 9});
}

TEST_CASE("rows are joined until vectors fit, where their number permits") {
  CHECK(folded({last_format, 1, 3, 8}, 4) == extents{last_format, 1, 12, 2, 4});
  CHECK(folded({last_format, 1, 6, 8}, 4) == extents{last_format, 1, 12, 4, 2});
  CHECK(folded({last_format, 1, 8, 9}, 4) == extents{last_format, 1, 8, 9, 1});
  CHECK(folded({last_format, 1, 3, 9}, 4) == extents{last_format, 1, 3, 9, 1});
}

TEST_CASE("the runs of a reduction cover every element once") {
  for_each_plan([](const tensor_shape& shape, const reduce_plan& plan) {
    REQUIRE(plan.splits >= 1);
    std::int64_t count = 0;
    for (std::int64_t split = 0; split < plan.splits; ++split) {
      REQUIRE(plan.units_of(split) > 0);
      count += plan.count_of(split);
    }
    REQUIRE(count * plan.shape.fold == shape.per_channel());
    REQUIRE(plan.shape.channels == shape.channels * plan.shape.fold);
    auto line = plan.shape.format == first_format ? plan.shape.spatial
                                                  : plan.shape.channels;
    REQUIRE(line % plan.width == 0);
  });
}

TEST_CASE("the tiles of a reduction over rows cover every column once") {
  for_each_plan([](const tensor_shape&, const reduce_plan& plan) {
    if (plan.shape.format == first_format)
      return;
    auto vectors = plan.shape.channels / plan.width;
    REQUIRE(plan.tile_width >= 1);
    REQUIRE(plan.tile_width * plan.tile_height <= block_threads);
    REQUIRE(plan.tiles * plan.tile_width >= vectors);
    REQUIRE((plan.tiles - 1) * plan.tile_width < vectors);
  });
}

TEST_CASE("a reduction of few channels fills the GPU, and one of little data "
          "does without a second pass") {
  auto blocks = [](memory_format format, const tensor_shape& shape) {
    auto plan = plan_reduction(format, shape, 4, true, true);
    return plan.splits
           * (plan.shape.format == first_format ? plan.shape.channels
                                                : plan.tiles);
  };
  for (std::int64_t c : {3, 4, 16, 64}) {
    tensor_shape shape{32, c, 112 * 112};
    CHECK(blocks(first_format, shape) >= 132);
    CHECK(blocks(first_format, shape) <= plane_blocks);
    CHECK(blocks(last_format, shape) >= 132);
    CHECK(blocks(last_format, shape) <= row_blocks);
  }
  CHECK(plan_reduction(first_format, {32, 256, 196}, 4, true, true).direct());
  CHECK(plan_reduction(last_format, {4, 64, 16}, 4, true, true).direct());
}

TEST_CASE(
    "few rows take one pass, by tiles so narrow that each block has all of "
    "them") {
  for (std::size_t bytes : {2, 4}) {
    auto width = std::int64_t(vector_bytes) / std::int64_t(bytes);
    for (std::int64_t rows : {1, 30, 200, 256}) {
      auto plan =
          plan_reduction(last_format, {rows, 1024, 1}, bytes, true, true);
      CHECK(plan.direct());
      CHECK(plan.tile_width >= 4);
      CHECK(plan.tiles == divide_up(1024 / width, plan.tile_width));
    }
    auto many = plan_reduction(last_format, {3000, 1024, 1}, bytes, true, true);
    CHECK(many.tile_width == 32);
    CHECK(many.splits > 1);
  }
}

TEST_CASE("a pass over rows has few threads with many packs each before it has "
          "many threads") {
  for (int width : {4, 8}) {
    auto blocks = [width](std::int64_t packs) {
      return make_pass_plan({last_format, 1, width, packs}, width).blocks;
    };
    auto wave = width == 8 ? 264 : 528;
    std::int64_t packs_of_block = 256 * 8;
    CHECK(blocks(512 * 100) == 100);
    CHECK(blocks(512 * wave) == wave);
    CHECK(blocks(512 * wave + 512) == wave);
    CHECK(blocks(packs_of_block * (2 * wave - 1)) == wave);
    CHECK(blocks(packs_of_block * 2 * wave) == 2 * wave);
    CHECK(blocks(packs_of_block * 100'000) == 2112);
  }
}

TEST_CASE(
    "a thread merges a bounded number of rounds, however large the tensor") {
  for (auto format : {first_format, last_format})
    for (std::int64_t c : {1, 3, 64, 265, 2048, 100'000})
      for (std::int64_t n : {1, 1000, 100'000})
        for (std::int64_t s : {1, 49, 4096, 1 << 20})
          for (std::size_t bytes : {2, 4, 8})
            for (auto aligned : {false, true}) {
              auto plan =
                  plan_reduction(format, {n, c, s}, bytes, true, aligned);
              auto of_round = plan.shape.format == first_format
                                  ? block_threads * plane_loads(plan.width)
                                  : plan.tile_height * row_loads;
              auto rounds = plan.chunk / of_round;
              REQUIRE(rounds <= thread_rounds);
            }
}

TEST_CASE("the workspace suffices for every plan of the shape") {
  // Planes that are not aligned are cut into more runs than aligned ones, and
  // joined rows have more columns.
  for (auto format : {first_format, last_format})
    for (std::int64_t n : {1, 3, 64})
      for (std::int64_t c : {1, 2, 3, 33, 64, 700})
        for (std::int64_t s : {1, 49, 16384, 1 << 20})
          for (auto type : {dtype::float32, dtype::float64, dtype::float16}) {
            tensor_layout layout{type, {n, c, s}, format, c * s, {}};
            auto bytes = reduction_workspace(layout);
            for (auto dense : {false, true})
              for (auto aligned : {false, true}) {
                auto plan = plan_reduction(format, layout.shape, size_of(type),
                                           dense, aligned);
                REQUIRE((plan.direct()
                         || bytes >= std::size_t(plan.partials()) * 16));
              }
          }
}

TEST_CASE("the threads of an elementwise pass visit every pack once") {
  for (auto format : {first_format, last_format})
    for (std::int64_t c : {1, 3, 8, 100, 2048, 700001})
      for (std::int64_t s : {1, 49, 3000})
        for (int width : {1, 4}) {
          extents shape{format, 1, c, s};
          if (c * s > 4000000 || c * s % width != 0)
            continue;
          auto plan = make_pass_plan(shape, width);
          std::vector<std::uint8_t> visits(std::size_t(plan.packs));
          for (std::int64_t block = 0; block < plan.blocks; ++block)
            for (int thread = 0; thread < block_threads; ++thread) {
              auto range = plan.range_of(block, thread);
              for (auto i = range.first; i < range.end; i += range.step)
                ++visits[std::size_t(i)];
            }
          REQUIRE(visits == std::vector<std::uint8_t>(visits.size(), 1));
        }
}

TEST_CASE("the tree over the rows of a tile ends in one result of all rows, "
          "and knows the count of each before") {
  for (int height = 2; height <= block_threads; ++height)
    for (int rows : {1, 2, height - 1, height, height + 1, 1000, 524288}) {
      check_tree<8>(height, rows);
      check_tree<16>(height, rows);
    }
}

TEST_CASE("a thread of a pass over rows keeps its channels") {
  for (std::int64_t c : {1, 3, 8, 100, 1021, 2048})
    for (int width : {1, 2, 4, 8}) {
      auto plan = make_pass_plan({last_format, 64, c, 3136}, width);
      REQUIRE(plan.step * width % c == 0);
      REQUIRE(plan.step % 32 == 0);
    }
}

TEST_CASE("more than 2^31 elements are counted in 64 bits") {
  auto half = std::int64_t{1} << 31;
  auto plan = plan_reduction(first_format, {3, 2, half}, 2, true, true);
  std::int64_t count = 0;
  for (std::int64_t split = 0; split < plan.splits; ++split)
    count += plan.count_of(split);
  CHECK(count == 3 * half);
  auto pass = make_pass_plan({first_format, 3, 2, half}, 8);
  auto last = pass.range_of(pass.blocks - 1, 0);
  CHECK(pass.packs == 6 * half / 8);
  CHECK(last.first < pass.packs);
  CHECK(last.end == pass.packs);
}

TEST_CASE("a reduction finds its elements behind the first 2^31") {
  constexpr auto half = std::int64_t{1} << 31;
  check_planes<1>({3, 2, 2 * half + 7});
  check_planes<8>({3, 2, 2 * half + 8});
  // Several planes in each step of a thread.
  check_planes<8>({300, half / 128, 248});
  check_rows<1>({1, 33, 2 * half + 7});
  check_rows<8>({1, 24, 2 * half + 7});
}

TEST_CASE("an element behind the first 2^31 has its own place and mask bit") {
  constexpr auto half = std::int64_t{1} << 31;
  float first = 0;
  tensor_layout layout{
      dtype::float32, {2, 3, half}, first_format, 3 * half + 5, {}};
  CHECK(place<float>({&first, layout}).gap == 5);
  // Memory that is reserved, and used in one page.
  std::unique_ptr<std::uint8_t, decltype(&std::free)> memory{
      static_cast<std::uint8_t*>(std::calloc(half + 9, 1)), &std::free};
  REQUIRE(memory != nullptr);
  gapped<std::uint8_t> tensor{memory.get(), 8};
  CHECK(tensor.at<true>({divisor{half}, true}, half) == memory.get() + half);
  CHECK(tensor.at<false>({divisor{half}, false}, half)
        == memory.get() + half + 8);
  memory.get()[half / 8] = 0x90;
  CHECK(mask_bits(memory.get(), half + 4) == 9);
  store_mask<8>(memory.get(), half + 8, 0x5a, true);
  CHECK(memory.get()[half / 8 + 1] == 0x5a);
}

TEST_CASE("a thread of a reduction loads its own units, and none behind them") {
  for (int step : {1, 5, block_threads})
    for (int left = -2 * step; left <= 20 * step; ++left) {
      check_rounds<4, 4>(left, step);
      check_rounds<8, 8>(left, step);
      check_rounds<8, 1>(left, step);
    }
}

TEST_CASE("the second pass merges each partial result of a channel once") {
  for (int threads : {warp_threads, merge_threads})
    for (std::int64_t splits = 1; splits <= 1200; ++splits)
      check_partials(splits, splits % 3 == 0 ? 4 : 1, threads);
}

TEST_CASE("the values of neighbouring channels are loaded at once where each "
          "array is aligned and a pack has whole runs of them") {
  alignas(16) const float values[16]{};
  const auto* odd = values + 1;
  auto whole_runs = [](const channel_normalizer& from, std::int64_t channels,
                       std::initializer_list<const void*> others) {
    return channel_arrays<float>{from, channels, 8, others}.whole_runs;
  };
  channel_normalizer aligned;
  for (const void** array :
       {&aligned.mean, &aligned.spread, &aligned.weight, &aligned.bias})
    *array = values;
  CHECK(whole_runs(aligned, 24, {values, nullptr}));
  CHECK_FALSE(whole_runs(aligned, 20, {values, nullptr}));
  CHECK_FALSE(whole_runs(aligned, 24, {values, odd}));
  for (auto array : {&channel_normalizer::mean, &channel_normalizer::spread,
                     &channel_normalizer::weight, &channel_normalizer::bias}) {
    auto one_odd = aligned;
    one_odd.*array = odd;
    CHECK_FALSE(whole_runs(one_odd, 24, {}));
  }
}

TEST_CASE("the mask has no bit for 0 and NaN, and ReLU leaves NaN") {
  constexpr auto nan = std::numeric_limits<float>::quiet_NaN();
  alignas(16) const float x[8]{0, -1, nan, 2, 0, nan, 3, 0};
  alignas(16) float y[8]{};
  const float zero = 0;
  const float one = 1;
  std::uint8_t mask[8]{};
  tensor_layout layout{dtype::float32, {1, 1, 8}, first_format, 8, {}};
  channel_normalizer channel;
  channel.mean = &zero;
  channel.spread = &one;
  with_normalize({x, layout}, channel, {y, layout}, {nullptr, true, mask},
                 [](const auto& pass, const pass_plan& plan) {
                   for (int thread = 0; thread < block_threads; ++thread)
                     run_pass(pass, plan.range_of(0, thread), thread % 32);
                 });
  CHECK(mask[0] == 0x48);
  for (int i = 0; i < 8; ++i)
    CHECK((i == 2 || i == 5 ? y[i] != y[i] : y[i] == std::max(x[i], 0.0f)));
}

TEST_CASE("vectors need aligned starts and strides") {
  alignas(16) std::byte memory[32];
  CHECK(start_aligned({memory, nullptr, memory + 16}));
  CHECK_FALSE(start_aligned({memory, memory + 8}));
  tensor_layout layout{dtype::float32, {3, 5, 7}, first_format, 35, {}};
  CHECK(stride_aligned(layout));
  layout.sample_stride = 36;
  CHECK(stride_aligned(layout));
  layout.sample_stride = 37;
  CHECK_FALSE(stride_aligned(layout));
  layout.type = dtype::float16;
  layout.sample_stride = 36;
  CHECK_FALSE(stride_aligned(layout));
  layout.sample_stride = 40;
  CHECK(stride_aligned(layout));
}

TEST_CASE(
    "a reduction loads 16 bytes at a time where start, strides and length "
    "permit") {
  for (std::size_t bytes : {2, 4, 8}) {
    auto whole = int(16 / bytes);
    auto width = [bytes](memory_format format, const tensor_shape& shape,
                         bool dense, bool aligned) {
      return plan_reduction(format, shape, bytes, dense, aligned).width;
    };
    for (auto dense : {false, true}) {
      CHECK(width(first_format, {3, 5, 16}, dense, true) == whole);
      CHECK(width(first_format, {3, 5, 16}, dense, false) == 1);
      CHECK(width(first_format, {3, 5, 15}, dense, true) == 1);
      CHECK(width(last_format, {3, 16, 5}, dense, true) == whole);
      CHECK(width(last_format, {3, 16, 5}, dense, false) == 1);
      // Rows are joined, but not odd ones.
      CHECK(width(last_format, {2, 3, 16}, dense, true) == whole);
      CHECK(width(last_format, {3, 3, 5}, dense, true) == 1);
    }
    CHECK(width(first_format, {16, 1, 5}, true, true) == whole);
    CHECK(width(first_format, {16, 1, 5}, false, true) == 1);
  }
}

TEST_CASE(
    "an elementwise pass loads 16 bytes at a time where all of its tensors "
    "permit") {
  alignas(16) std::byte memory[64];
  const auto* odd = memory + 8;
  for (auto format : {first_format, last_format})
    for (auto type : {dtype::float32, dtype::float64, dtype::bfloat16}) {
      auto whole = int(16 / size_of(type));
      auto width = [&](const tensor_shape& shape,
                       std::initializer_list<operand> tensors) {
        tensor_layout layout{
            type, shape, format, shape.channels * shape.spatial, {}};
        return plan_pass(layout, tensors).plan.width;
      };
      CHECK(width({3, 5, 16}, {{memory, 80}, {memory, 88}}) == whole);
      CHECK(width({3, 5, 16}, {{memory, 80}, {nullptr, 81}}) == whole);
      CHECK(width({3, 5, 16}, {{memory, 80}, {odd, 80}}) == 1);
      CHECK(width({3, 5, 16}, {{memory, 80}, {memory, 81}}) == 1);
      // Without gaps a pack may lie across planes and samples.
      CHECK(width({16, 5, 3}, {{memory, 15}, {memory, 15}}) == whole);
      CHECK(width({16, 5, 3}, {{memory, 15}, {memory, 16}}) == 1);
      CHECK(width({3, 5, 3}, {{memory, 15}, {memory, 15}}) == 1);
    }
}
