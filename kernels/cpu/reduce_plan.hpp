#pragma once

#include "kernels/cpu/walk.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace syncnorm::cpu {

/// Terms that a lane sums in the type of calculation before all lanes are added
/// to a result in float64: few enough to keep the rounding error small.
inline constexpr std::int64_t sum_terms = 256;
/// Elements of a block: few enough to stay in a first-level cache.
inline constexpr std::int64_t block_elements = 4096;
/// A block has at most this many times the elements that its pivot comes from.
inline constexpr std::int64_t block_growth = 64;
/// The same for rows, which have one element per channel, not a vector of them:
/// a first block of 4 gives a poor pivot for 256.
inline constexpr std::int64_t row_growth = 16;
/// Rows of the first block, whose pivot is one element.
inline constexpr std::int64_t first_rows = 4;
/// Elements whose mean is the first pivot of planes that are longer than a
/// block with a pivot of one element may be.
inline constexpr std::int64_t first_elements = 16;
/// Planes below this size are too short for a sum of their own.
inline constexpr std::int64_t short_plane = 512;
/// Slabs of a large tensor.
inline constexpr std::int64_t max_slabs = 16;
/// The fewest columns that rows are folded to.
inline constexpr std::int64_t reduce_columns = 128;

/// How a reduction is cut, depending only on shape and gaps: into slabs of
/// groups (of rows), reduced separately and merged at the end. Slabs may run in
/// parallel, and so may ranges of channels.
struct reduce_plan {
  std::int64_t slabs = 1;
  std::int64_t fold = 1;
};

[[nodiscard]] inline reduce_plan plan_of(const walk& w) {
  constexpr std::int64_t slab_elements = std::int64_t{1} << 20;
  auto units = w.rows ? w.per_channel() : w.groups;
  reduce_plan result;
  result.slabs = std::clamp(w.size() / slab_elements, std::int64_t{1},
                            std::clamp(units, std::int64_t{1}, max_slabs));
  if (w.rows && w.dense_rows)
    result.fold = fold_of(w.channels, reduce_columns);
  return result;
}

/// The two results of each channel, in float64.
struct channel_results {
  double* first = nullptr;
  double* second = nullptr;
};

/// One slab's share of the workspace.
struct slab_memory : channel_results {
  /// The pivot, and the running sums, in the type of calculation.
  std::byte* pivots = nullptr;
  std::byte* sums = nullptr;
  std::byte* products = nullptr;
};

/// Cuts the workspace. Each piece starts on a cache line.
class slab_layout {
public:
  slab_layout(const tensor_layout& x) {
    constexpr std::int64_t line = 64;
    auto channels = x.shape.channels;
    auto real = x.type == dtype::float64 ? 8 : 4;
    // Planes keep a vector of at most 64 bytes for each channel.
    auto columns =
        x.format == memory_format::channels_first && x.shape.spatial > 1
            ? channels * (line / real)
            : channels * fold_of(channels, reduce_columns);
    results_ = round_up(channels * 8);
    // A vector may reach past the last column.
    sums_ = round_up(columns * real + line);
    for (auto dense : {false, true})
      slabs_ = std::max(slabs_, plan_of(walk_of(x, dense)).slabs);
  }

  [[nodiscard]] std::size_t bytes() const {
    return std::size_t(slabs_ * slab_bytes() + 64);
  }

  [[nodiscard]] slab_memory slab(void* workspace, std::int64_t index) const {
    auto address = reinterpret_cast<std::uintptr_t>(workspace);
    auto* base = static_cast<std::byte*>(workspace)
                 + (round_up(std::int64_t(address)) - std::int64_t(address))
                 + index * slab_bytes();
    auto* reals = base + 2 * results_;
    return {{reinterpret_cast<double*>(base),
             reinterpret_cast<double*>(base + results_)},
            reals,
            reals + sums_,
            reals + 2 * sums_};
  }

private:
  static std::int64_t round_up(std::int64_t bytes) {
    return (bytes + 63) / 64 * 64;
  }

  [[nodiscard]] std::int64_t slab_bytes() const {
    return 2 * results_ + 3 * sums_;
  }

  std::int64_t slabs_ = 1;
  std::int64_t results_ = 0;
  std::int64_t sums_ = 0;
};

/// One task of a reduction: a range of a slab's units, and one of channels.
struct reduce_task {
  std::int64_t slab = 0;
  std::int64_t first_unit = 0;
  std::int64_t last_unit = 0;
  std::int64_t first_channel = 0;
  std::int64_t last_channel = 0;
};

/// Cuts a reduction into slabs times ranges of channels; only the ranges
/// depend on how many parts are asked for.
class reduce_tasks {
public:
  reduce_tasks(const walk& w, const reduce_plan& plan, std::int64_t parts)
      : walk_{w},
        slabs_{plan.slabs} {
    // Rows are cut where a cache line ends; folded rows not at all.
    auto grain = w.rows ? std::int64_t{64} : std::int64_t{1};
    auto most = plan.fold > 1 ? 1 : (w.channels + grain - 1) / grain;
    auto useful = std::min(parts, slabs_ * most);
    ranges_ = std::clamp((useful + slabs_ - 1) / slabs_, std::int64_t{1}, most);
    auto width = (w.channels + ranges_ - 1) / ranges_;
    width_ = (width + grain - 1) / grain * grain;
  }

  [[nodiscard]] std::int64_t size() const {
    return slabs_ * ranges_;
  }

  [[nodiscard]] std::int64_t slab_begin(std::int64_t slab) const {
    auto units = walk_.rows ? walk_.per_channel() : walk_.groups;
    return units / slabs_ * slab + std::min(slab, units % slabs_);
  }

  /// Elements of each channel in a slab.
  [[nodiscard]] std::int64_t slab_count(std::int64_t slab) const {
    auto units = slab_begin(slab + 1) - slab_begin(slab);
    return walk_.rows ? units : units * walk_.inner;
  }

  [[nodiscard]] reduce_task operator[](std::int64_t i) const {
    auto slab = i / ranges_;
    auto range = i % ranges_;
    auto channels = walk_.channels;
    return {slab, slab_begin(slab), slab_begin(slab + 1),
            std::min(range * width_, channels),
            std::min((range + 1) * width_, channels)};
  }

private:
  walk walk_;
  std::int64_t slabs_;
  std::int64_t ranges_;
  std::int64_t width_;
};

} // namespace syncnorm::cpu
