#pragma once

#include "syncnorm/tensor_view.hpp"

#include <cstdint>

namespace syncnorm::cpu {

/// How the tensors of one call are traversed, in memory order: either as
/// planes, runs of elements of one channel, or as rows, runs of one element of
/// each channel. All tensors of a call have the same walk; what differs is in
/// their `strides`.
struct walk {
  bool rows = false;
  /// Outer steps, `strides::group` apart.
  std::int64_t groups = 0;
  /// Elements of a plane, or rows of a group.
  std::int64_t inner = 0;
  std::int64_t channels = 0;
  /// Rows that follow each other without a gap.
  bool dense_rows = false;

  [[nodiscard]] std::int64_t per_channel() const {
    return groups * inner;
  }
  [[nodiscard]] std::int64_t size() const {
    return per_channel() * channels;
  }
};

/// Distances in elements.
struct strides {
  std::int64_t group = 0;
  /// From row to row; in planes from channel to channel.
  std::int64_t inner = 0;
};

[[nodiscard]] inline bool gapless(const tensor_layout& x) {
  return x.sample_stride == x.shape.channels * x.shape.spatial;
}

/// A single channel of gapless tensors: one plane, cut wherever that makes
/// planes of the same size which are worth a task.
[[nodiscard]] inline walk walk_of_channel(std::int64_t n, std::int64_t s) {
  constexpr std::int64_t least = std::int64_t{1} << 16;
  walk result{false, 1, n * s, 1, true};
  if (n > 0 && s >= least)
    result = {false, n, s, 1, true};
  while (result.groups < 16 && result.inner % 2 == 0
         && result.inner / 2 >= least) {
    result.groups *= 2;
    result.inner /= 2;
  }
  return result;
}

/// @param dense all tensors of the call are gapless.
[[nodiscard]] inline walk walk_of(const tensor_layout& x, bool dense) {
  auto [n, c, s] = x.shape;
  if (c == 1 && dense)
    return walk_of_channel(n, s);
  if (c == 1 || (x.format == memory_format::channels_first && s > 1))
    return {false, n, s, c, true};
  // The rows of all samples are one group, unless gaps between samples and
  // the steps within them differ.
  if (s == 1 || dense)
    return {true, 1, n * s, c, dense};
  return {true, n, s, c, true};
}

[[nodiscard]] inline strides strides_of(const walk& w, const tensor_layout& x) {
  // The planes of a single channel follow each other, also within a sample.
  if (!w.rows)
    return {w.channels == 1 && gapless(x) ? w.inner : x.sample_stride, w.inner};
  return {x.sample_stride, w.dense_rows ? w.channels : x.sample_stride};
}

/// How many dense rows are treated as one, so that it has at least `columns`
/// columns and fills whole vectors: with few channels a row is shorter than a
/// vector.
[[nodiscard]] inline std::int64_t fold_of(std::int64_t channels,
                                          std::int64_t columns) {
  if (channels >= columns)
    return 1;
  // channels * step is a multiple of 16, the most lanes of a vector.
  std::int64_t step = 16;
  for (auto c = channels; step > 1 && c % 2 == 0; c /= 2)
    step /= 2;
  auto whole = channels * step;
  return (columns + whole - 1) / whole * step;
}

} // namespace syncnorm::cpu
