#pragma once

// What one thread does of `add_arrays`, `round_array` and `clear_clamped`, and
// how their arguments become tasks of kernels; `run(task)` then launches the
// task or, in a test, does it on the host.

#include "kernels/cuda/merge_tree.hpp"
#include "kernels/no_part.hpp"
#include "syncnorm/error.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace syncnorm::cuda {

/// Up to `Capacity` arrays, and where their sum goes.
template <class Real, int Capacity>
struct add_parts_task {
  static constexpr int most_groups = Capacity / merge_group;

  const Real* part[Capacity];
  int parts = 0;
  /// What stands in for missing parts.
  Real nothing = 0;
  std::int64_t elements = 0;
  Real* out = nullptr;
  /// The sum of the parts before these is in the output already.
  bool onto = false;

  /// Adds the parts of one group: neighbours at distance 1, then 2, 4, 8.
  [[nodiscard]] SYNCNORM_HOST_DEVICE Real group_sum(std::int64_t element,
                                                    int group) const {
    Real sums[merge_group];
    SYNCNORM_UNROLL
    for (int i = 0; i < merge_group; ++i) {
      int k = group * merge_group + i;
      auto there = k < parts && part[k] != nullptr;
      sums[i] = there ? part[k][element] : nothing;
    }
    SYNCNORM_UNROLL
    for (int distance = 1; distance < merge_group; distance *= 2) {
      SYNCNORM_UNROLL
      for (int i = 0; i < merge_group; i += 2 * distance)
        sums[i] += sums[i + distance];
    }
    return sums[0];
  }

  /// Groups merge as the digits of a counter carry: `stack` has the sum of a
  /// subtree for each 1 in the number of groups so far.
  SYNCNORM_HOST_DEVICE void run(std::int64_t element) const {
    Real stack[most_groups < 2 ? 2 : 7];
    int height = 0;
    int groups = (parts + merge_group - 1) / merge_group;
    for (int group = 0; group < groups; ++group) {
      auto sum = group_sum(element, group);
      for (int ones = group; (ones & 1) != 0; ones >>= 1)
        sum = stack[--height] + sum;
      stack[height++] = sum;
    }
    auto total = stack[--height];
    while (height > 0)
      total = stack[--height] + total;
    out[element] = onto ? out[element] + total : total;
  }
};

/// The arrays of `round_array`.
struct round_task {
  const double* from = nullptr;
  std::int64_t elements = 0;
  float* out = nullptr;

  SYNCNORM_HOST_DEVICE void run(std::int64_t element) const {
    out[element] = float(from[element]);
  }
};

/// The arrays of `clear_clamped`.
template <class Real>
struct clear_clamped_task {
  const Real* inv_std = nullptr;
  Real limit = 0;
  std::int64_t elements = 0;
  Real* sums = nullptr;

  SYNCNORM_HOST_DEVICE void run(std::int64_t element) const {
    if (inv_std[element] >= limit)
      sums[element] = 0;
  }
};

using array_list = std::span<const void* const>;

template <class Real, int Capacity>
[[nodiscard]] add_parts_task<Real, Capacity>
make_add(array_list parts, Real nothing, std::int64_t elements, void* out,
         bool onto) {
  add_parts_task<Real, Capacity> task;
  task.nothing = nothing;
  for (const auto* part : parts)
    task.part[task.parts++] = static_cast<const Real*>(part);
  task.elements = elements;
  task.out = static_cast<Real*>(out);
  task.onto = onto;
  return task;
}

/// Calls `run` for each launch of `add_arrays`, in order: as `with_merges`.
/// @throws error `invalid_argument` if there are more parts than two launches
///         take.
template <class Real, class Run>
void with_adds(array_list parts, std::int64_t elements, void* out,
               const Run& run) {
  constexpr std::size_t most = 2 * merge_capacity;
  if (parts.size() > most)
    throw error{errc::invalid_argument,
                "add_arrays: parts: expected at most " + std::to_string(most)
                    + " on a CUDA device (add aligned groups of a power of "
                      "two first), got "
                    + std::to_string(parts.size())};
  auto nothing = no_part<Real>(parts);
  for (bool onto = false; !parts.empty(); onto = true) {
    auto length = std::min(parts.size(), std::size_t{merge_capacity});
    auto now = parts.first(length);
    if (length <= small_merge_capacity)
      run(make_add<Real, small_merge_capacity>(now, nothing, elements, out,
                                               onto));
    else
      run(make_add<Real, merge_capacity>(now, nothing, elements, out, onto));
    parts = parts.subspan(length);
  }
}

/// Calls `run` with the task of `clear_clamped`.
template <class Real, class Run>
void with_clear(const void* inv_std, double eps, std::int64_t channels,
                void* sums, const Run& run) {
  run(clear_clamped_task<Real>{static_cast<const Real*>(inv_std),
                               math::clamped_inv_std<Real>(eps), channels,
                               static_cast<Real*>(sums)});
}

} // namespace syncnorm::cuda
