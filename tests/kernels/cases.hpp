#pragma once

// The cases that each operation is tested with: shapes, layouts, instruction
// sets.

#include "kernels/cpu/cpu_kind.hpp"
#include "kernels/cpu/elementwise_plan.hpp"
#include "syncnorm/execution.hpp"
#include "syncnorm/tensor_view.hpp"
#include "tests/kernels/tensor.hpp"

#include <doctest/doctest.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace syncnorm::test {

inline constexpr std::array all_types{dtype::float32, dtype::float64,
                                      dtype::float16, dtype::bfloat16};
inline constexpr std::array all_formats{memory_format::channels_first,
                                        memory_format::channels_last};

/// 1, primes, and the edges of vectors (2 to 16 elements), of short planes
/// (512), of blocks (4096), of folded rows (64, 128, 512 columns), of tiles of
/// constants (512 and 1024) ± 1.
inline const std::vector<tensor_shape> small_shapes{
    {1, 1, 1},    {2, 3, 1},    {1, 1, 7},     {3, 5, 7},    {2, 16, 15},
    {2, 17, 16},  {3, 8, 17},   {5, 4, 31},    {2, 3, 33},   {7, 13, 49},
    {1, 2, 511},  {2, 3, 512},  {2, 3, 513},   {1, 1, 4097}, {3, 2, 5000},
    {1, 130, 3},  {2, 129, 4},  {300, 3, 1},   {70, 64, 9},  {40, 2, 100},
    {600, 7, 2},  {2, 1030, 3}, {1, 2050, 2},  {9, 1025, 1}, {130, 1, 1},
    {4, 127, 5},  {19, 63, 16}, {3, 513, 4},   {1, 1, 64},   {1, 3, 65},
    {2, 1, 4160}, {257, 31, 1}, {260, 300, 1}, {4, 512, 49}, {48, 8, 1}};

/// More than one slab of a reduction, or rows that a core's own cache does not
/// hold; and one plane that cannot be cut in two.
inline const std::vector<tensor_shape> large_shapes{
    {8, 4, 70'000},    {40, 130, 500},   {3, 3, 350'000}, {2, 1030, 151},
    {2, 1, 1'100'000}, {3, 100, 13'007}, {1, 1, 140'001}};

/// Outputs of several blocks, which are processed from the last to the first:
/// with few and many lines per sample, folded rows, more than one tile of
/// constants; and one plane that cannot be cut in two.
inline const std::vector<tensor_shape> block_shapes{
    {3, 5, 40'003}, {7, 130, 499}, {5, 1030, 61},
    {311, 7, 101},  {401, 997, 1}, {1, 1, 140'001}};

/// Planes that are shorter than a vector or end within one.
inline const std::vector<tensor_shape> tiny_planes{
    {9000, 12, 2}, {9000, 12, 3}, {5000, 12, 9}, {20'000, 1, 1}};

/// A layout and what is odd about it.
struct layout_case {
  tensor_layout layout;
  std::size_t skip = 0;
};

/// Layouts without gaps and aligned; and with gaps between samples and
/// unaligned.
inline std::vector<layout_case> layouts_of(dtype type,
                                           const tensor_shape& shape) {
  std::vector<layout_case> result;
  for (auto format : all_formats) {
    tensor_layout layout{
        type, shape, format, shape.channels * shape.spatial, {}};
    result.push_back({layout, 0});
    layout.sample_stride += 5;
    result.push_back({layout, 3});
  }
  return result;
}

inline std::string describe(const tensor_layout& layout) {
  return to_string(layout.type) + " [" + std::to_string(layout.shape.samples)
         + ", " + std::to_string(layout.shape.channels) + ", "
         + std::to_string(layout.shape.spatial) + "] "
         + to_string(layout.format) + ", sample stride "
         + std::to_string(layout.sample_stride);
}

/// Small tensors that count as too large for the caches: their samples are far
/// apart. Planes, rows of one and of several tiles of constants, rows that
/// several fill the registers with, rows with gaps.
inline std::vector<layout_case> far_apart(dtype type) {
  std::vector<layout_case> result;
  for (tensor_shape shape : {tensor_shape{1, 5, 6001},
                             {1, 16, 1700},
                             {1, 513, 97},
                             {1, 1030, 61},
                             {3, 7, 501},
                             {11, 700, 1}})
    for (auto format : all_formats)
      for (auto skip : {std::size_t{0}, std::size_t{3}}) {
        auto column = shape.samples * std::int64_t(size_of(type));
        auto stride = cpu::streamed_bytes / column + 1;
        result.push_back({{type, shape, format, stride, {}}, skip});
      }
  return result;
}

/// Calls `body()` as on each kind of CPU that is treated differently. What they
/// are asked for ahead has kernels of its own with AVX-512 alone.
template <class Body>
void for_each_cpu(const Body& body) {
  auto here = cpu::this_cpu();
  for (auto kind :
       {cpu::cpu_kind::any, cpu::cpu_kind::zen4, cpu::cpu_kind::zen5}) {
    cpu::this_cpu() = kind;
    INFO("as kind of CPU ", int(kind));
    body();
  }
  cpu::this_cpu() = here;
}

/// Calls `body()` with the kernels of each instruction set that this CPU has.
template <class Body>
void for_each_target(const Body& body) {
  hwy::SetSupportedTargetsForTest(0);
  auto all = hwy::SupportedTargets();
  for (auto rest = all; rest != 0; rest &= rest - 1) {
    auto target = rest & ~(rest - 1);
    if ((target & (HWY_SSSE3 | HWY_AVX3_DL | HWY_EMU128)) != 0)
      continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    INFO("instruction set ", std::string{hwy::TargetName(target)});
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

/// Calls `body(layout_case)` for each dtype, layout and instruction set, and as
/// on each kind of CPU where these have kernels of their own.
template <class Body>
void for_each_case(const std::vector<tensor_shape>& shapes, const Body& body) {
  for_each_target([&] {
    auto avx512 = (hwy::SupportedTargets() & HWY_AVX3) != 0;
    for (const auto& shape : shapes)
      for (auto type : all_types)
        for (const auto& one : layouts_of(type, shape)) {
          INFO(describe(one.layout));
          if (avx512 && type != dtype::float64)
            for_each_cpu([&] { body(one); });
          else
            body(one);
        }
  });
}

/// A workspace of `bytes`, aligned as documented and not a byte more.
class scratch_memory {
public:
  explicit scratch_memory(std::size_t bytes) : memory_{bytes, 16} {}

  [[nodiscard]] workspace get() {
    return {memory_.data(), memory_.size()};
  }
  [[nodiscard]] bool guards_intact() const {
    return memory_.guards_intact();
  }
  [[nodiscard]] bool untouched() const {
    return memory_.untouched();
  }

private:
  guarded_memory memory_;
};

} // namespace syncnorm::test
