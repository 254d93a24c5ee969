#pragma once

// The layouts and the data that the checks of the CUDA kernels use, and their
// comparison.

#include "tests/kernels/cuda_backend.hpp"
#include "tests/kernels/tolerance.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <utility>

namespace syncnorm::testing {

/// A tensor's layout and how it lies in memory.
struct placement {
  tensor_layout layout;
  /// Elements before the first one.
  std::int64_t offset = 0;

  [[nodiscard]] std::string text() const {
    const auto& shape = layout.shape;
    return to_string(layout.type) + " " + to_string(layout.format) + " N "
           + std::to_string(shape.samples) + " C "
           + std::to_string(shape.channels) + " S "
           + std::to_string(shape.spatial) + " stride "
           + std::to_string(layout.sample_stride) + " offset "
           + std::to_string(offset);
  }
};

/// Calls `f(placement)` for a shape with each dtype and format: dense, dense
/// behind one element (no vector is aligned), with gaps that keep vectors
/// aligned, and with gaps that do not.
template <class F>
void for_each_placement(const tensor_shape& shape, device where, const F& f) {
  auto sample = shape.channels * shape.spatial;
  auto wide = (sample + 31) / 16 * 16;
  for (auto type :
       {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16})
    for (auto format :
         {memory_format::channels_first, memory_format::channels_last})
      for (auto [stride, offset] : {std::pair{sample, std::int64_t{0}},
                                    {sample, std::int64_t{1}},
                                    {wide, std::int64_t{0}},
                                    {sample + 3, std::int64_t{0}}})
        f(placement{{type, shape, format, stride, where}, offset});
}

/// Sizes around the edges of vectors (2 to 8 elements), warps, tiles (32
/// vectors), blocks (256 threads) and runs; and primes.
inline std::vector<tensor_shape> edge_shapes() {
  return {{1, 1, 1},     {1, 1, 7},     {3, 1, 8},   {5, 1, 33},
          {1, 2, 1},     {2, 3, 1},     {4, 3, 4},   {3, 4, 16},
          {2, 5, 9},     {7, 7, 7},     {2, 8, 15},  {3, 16, 17},
          {64, 31, 2},   {65, 32, 3},   {5, 33, 49}, {2, 100, 64},
          {257, 129, 1}, {33, 1021, 1}, {3, 257, 5}, {2, 2048, 4}};
}

/// Sizes that are cut into several runs, with few channels and many.
inline std::vector<tensor_shape> split_shapes() {
  return {{1, 1, 262147},
          {2, 3, 40000},
          {16, 4, 4096},
          {9, 64, 1024},
          {3, 6, 12544}};
}

/// Fails, and says where, unless |found - expected| <= tolerance.
inline void check_near(double found, double expected, double tolerance,
                       const std::string& where) {
  if (!(std::abs(found - expected) <= tolerance))
    FAIL_CHECK(where << ": found " << found << ", expected " << expected
                     << ", tolerance " << tolerance);
}

/// Random parameters of C channels, as the statistics type holds them.
struct random_channels {
  dtype type;
  std::vector<double> mean, inv_std, weight, bias;

  random_channels(dtype of, std::int64_t channels) : type{of} {
    for (std::int64_t c = 0; c < channels; ++c) {
      mean.push_back(value(11, c, 3 + double(c % 7), 0.5));
      inv_std.push_back(value(12, c, 1, 0.3));
      weight.push_back(value(13, c, 0.2, 1));
      bias.push_back(value(14, c, 0, 1));
    }
  }

private:
  [[nodiscard]] double value(std::uint64_t seed, std::int64_t c, double center,
                             double deviation) const {
    double exact = center + deviation * noise(seed, std::uint64_t(c));
    std::byte bytes[8];
    test::write_element(type, bytes, exact);
    return test::read_element(type, bytes);
  }
};

inline bool bit_of(const std::vector<std::byte>& mask, std::int64_t i) {
  return (std::to_integer<unsigned>(mask[std::size_t(i / 8)]) >> (i % 8) & 1u)
         != 0;
}

inline std::size_t mask_size(const tensor_layout& layout) {
  auto elements = layout.shape.per_channel() * layout.shape.channels;
  return std::size_t((elements + 63) / 64 * 8);
}

/// A mask of random bits.
inline std::vector<std::byte> random_mask(const tensor_layout& layout) {
  std::vector<std::byte> bits(mask_size(layout));
  for (std::size_t i = 0; i < bits.size(); ++i)
    bits[i] = std::byte(unsigned(128 + 73 * noise(9, i)) & 0xffu);
  return bits;
}

} // namespace syncnorm::testing
