#pragma once

// From the arguments of `merge_moments` and `finalize_moments` to the tasks of
// their kernels; `run(task)` then launches the task or, in a test, does it on
// the host.

#include "kernels/cuda/merge_tree.hpp"
#include "syncnorm/error.hpp"

#include <algorithm>
#include <span>
#include <string>

namespace syncnorm::cuda {

using part_list = std::span<const const_moments_view>;

template <class Real, int Capacity>
[[nodiscard]] merge_parts_task<Real, Capacity>
make_merge(part_list parts, const moments_view& out,
           std::int64_t count_before) {
  merge_parts_task<Real, Capacity> task;
  for (const auto& part : parts) {
    task.mean[task.parts] = static_cast<const Real*>(part.mean);
    task.m2[task.parts] = static_cast<const Real*>(part.m2);
    task.count[task.parts] = part.count;
    ++task.parts;
  }
  task.channels = out.channels;
  task.mean_out = static_cast<Real*>(out.mean);
  task.m2_out = static_cast<Real*>(out.m2);
  task.count_before = count_before;
  return task;
}

/// Calls `run` for each launch of `merge_moments`, in order. Two can follow
/// the tree with the output between them; a third would need memory for a
/// second branch.
/// @throws error `invalid_argument` if there are more parts than that.
template <class Real, class Run>
void with_merges(part_list parts, const moments_view& out, const Run& run) {
  constexpr std::size_t most = 2 * merge_capacity;
  if (parts.size() > most)
    throw error{errc::invalid_argument,
                "merge_moments: parts: expected at most " + std::to_string(most)
                    + " on a CUDA device (merge aligned groups of a power of "
                      "two first), got "
                    + std::to_string(parts.size())};
  std::int64_t count_before = 0;
  while (!parts.empty()) {
    auto length = std::min(parts.size(), std::size_t{merge_capacity});
    auto now = parts.first(length);
    if (length <= small_merge_capacity)
      run(make_merge<Real, small_merge_capacity>(now, out, count_before));
    else
      run(make_merge<Real, merge_capacity>(now, out, count_before));
    for (const auto& part : now)
      count_before += part.count;
    parts = parts.subspan(length);
  }
}

/// Calls `run` with the task of `finalize_moments`.
template <class Real, class Run>
void with_finalize(const const_moments_view& total,
                   const finalize_options& options, void* mean, void* inv_std,
                   const running_view& running, const Run& run) {
  run(finalize_task<Real>{
      total.count, total.channels, static_cast<const Real*>(total.mean),
      static_cast<const Real*>(total.m2), options, static_cast<Real*>(mean),
      static_cast<Real*>(inv_std), static_cast<Real*>(running.mean),
      static_cast<Real*>(running.var)});
}

} // namespace syncnorm::cuda
