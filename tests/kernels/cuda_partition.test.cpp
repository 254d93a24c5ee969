#include "kernels/cuda/alignment.hpp"
#include "kernels/cuda/divisor.hpp"
#include "kernels/cuda/partition.hpp"
#include "kernels/cuda/prepare_pass.hpp"
#include "kernels/cuda/row_tree.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
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
