#pragma once

// What one thread does of `merge_moments` and `finalize_moments`.

#include "kernels/cuda/unroll.hpp"
#include "kernels/math.hpp"

#include <cstdint>

namespace syncnorm::cuda {

/// Parts that one thread merges, for one channel.
inline constexpr int merge_group = 16;

/// Channels per block of merge_moments_kernel.
inline constexpr int merge_channels = 16;

/// The largest number of parts that one launch takes: their pointers travel
/// as kernel parameters, of which there are at most 32,764 bytes.
inline constexpr int merge_capacity = 1024;

/// Parts of the usual launch, whose parameters are short.
inline constexpr int small_merge_capacity = 32;

/// Moments and the number of values that they cover.
template <class Real>
struct tree_node {
  std::int64_t count = 0;
  math::mean_m2<Real> moments;
};

template <class Real>
SYNCNORM_HOST_DEVICE inline tree_node<Real>
merge_nodes(const tree_node<Real>& a, const tree_node<Real>& b) {
  return {a.count + b.count,
          math::merged_node(a.moments, a.count, b.moments, b.count)};
}

/// Up to `Capacity` parts, and where their union goes.
template <class Real, int Capacity>
struct merge_parts_task {
  const Real* mean[Capacity];
  const Real* m2[Capacity];
  std::int64_t count[Capacity];
  int parts = 0;
  std::int64_t channels = 0;
  Real* mean_out = nullptr;
  Real* m2_out = nullptr;
  /// Values that are in the output already: the parts before these.
  std::int64_t count_before = 0;

  [[nodiscard]] SYNCNORM_HOST_DEVICE int groups() const {
    return (parts + merge_group - 1) / merge_group;
  }

  /// Merges the parts of one group: neighbours at distance 1, then 2, 4, 8.
  /// Missing parts have a count of 0, which is a no-op.
  [[nodiscard]] SYNCNORM_HOST_DEVICE tree_node<Real> share(std::int64_t channel,
                                                           int group) const {
    tree_node<Real> nodes[merge_group];
    SYNCNORM_UNROLL
    for (int i = 0; i < merge_group; ++i) {
      int part = group * merge_group + i;
      if (part < parts && count[part] > 0)
        nodes[i] = {count[part], {mean[part][channel], m2[part][channel]}};
    }
    SYNCNORM_UNROLL
    for (int distance = 1; distance < merge_group; distance *= 2) {
      SYNCNORM_UNROLL
      for (int i = 0; i < merge_group; i += 2 * distance)
        nodes[i] = merge_nodes(nodes[i], nodes[i + distance]);
    }
    return nodes[0];
  }

  /// Merges group `group` of a column of the board with the one `distance`
  /// after it. Called for distances 1, 2, 4, ... below the number of groups.
  SYNCNORM_HOST_DEVICE void merge(tree_node<Real>* column, int group,
                                  int distance) const {
    if (group % (2 * distance) == 0 && group + distance < groups()) {
      auto& mine = column[group * merge_channels];
      mine = merge_nodes(mine, column[(group + distance) * merge_channels]);
    }
  }

  SYNCNORM_HOST_DEVICE void put(std::int64_t channel,
                                tree_node<Real> total) const {
    if (count_before > 0) {
      tree_node<Real> before{count_before,
                             {mean_out[channel], m2_out[channel]}};
      total = merge_nodes(before, total);
    }
    mean_out[channel] = total.moments.mean;
    m2_out[channel] = total.moments.m2;
  }
};

/// The arrays of `finalize_moments`.
template <class Real>
struct finalize_task {
  std::int64_t count = 0;
  std::int64_t channels = 0;
  const Real* total_mean = nullptr;
  const Real* total_m2 = nullptr;
  finalize_options options;
  Real* mean = nullptr;
  Real* inv_std = nullptr;
  Real* running_mean = nullptr;
  Real* running_var = nullptr;

  SYNCNORM_HOST_DEVICE void run(std::int64_t channel) const {
    math::mean_m2<double> total;
    if (count > 0)
      total = {double(total_mean[channel]), double(total_m2[channel])};
    auto keeps = running_mean != nullptr;
    auto result = math::finalize(total, count, options,
                                 keeps ? double(running_mean[channel]) : 0.0,
                                 keeps ? double(running_var[channel]) : 0.0);
    mean[channel] = Real(result.mean);
    inv_std[channel] = Real(result.inv_std);
    if (keeps) {
      running_mean[channel] = Real(result.running_mean);
      running_var[channel] = Real(result.running_var);
    }
  }
};

} // namespace syncnorm::cuda
