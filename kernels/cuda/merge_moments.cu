#include "kernels/backend.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/merge_tree.hpp"
#include "kernels/cuda/partition.hpp"

#include <algorithm>

namespace syncnorm::cuda {

namespace {

/// Table of parts for the number that is usual, so that the launch is short.
constexpr int small_capacity = 32;

/// A block for each `merge_channels` channels; a thread for each group of
/// parts and each of these channels.
template <class Real, int Capacity>
__global__ void merge_moments_kernel(
    const __grid_constant__ merge_parts_task<Real, Capacity> task) {
  constexpr int most_groups = Capacity / merge_group;
  using node = tree_node<Real>;
  // Raw, since shared memory cannot be initialized.
  __shared__ alignas(node) unsigned char
      shared[sizeof(node) * most_groups * merge_channels];
  auto lane = int(threadIdx.x) % merge_channels;
  auto group = int(threadIdx.x) / merge_channels;
  auto channel = std::int64_t{blockIdx.x} * merge_channels + lane;
  auto* column = reinterpret_cast<node*>(shared) + lane;
  auto& mine = column[group * merge_channels];
  mine = channel < task.channels ? task.share(channel, group) : node{};
  for (int distance = 1; distance < task.groups(); distance *= 2) {
    __syncthreads();
    task.merge(column, group, distance);
  }
  if (group == 0 && channel < task.channels)
    task.put(channel, mine);
}

template <class Real>
__global__ void __launch_bounds__(block_threads)
    finalize_moments_kernel(const __grid_constant__ finalize_task<Real> task) {
  auto channel = std::int64_t{blockIdx.x} * block_threads + threadIdx.x;
  if (channel < task.channels)
    task.run(channel);
}

using part_list = std::span<const const_moments_view>;

template <class Real, int Capacity>
void merge_by_table(const device_scope& scope, part_list parts,
                    const moments_view& out, std::int64_t count_before) {
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
  launch(scope, "merge_moments_kernel", merge_moments_kernel<Real, Capacity>,
         divide_up(out.channels, merge_channels),
         task.groups() * merge_channels, task);
}

template <class Real>
void merge_in_order(const device_scope& scope, part_list parts,
                    const moments_view& out) {
  std::int64_t count_before = 0;
  while (!parts.empty()) {
    auto length = std::min(parts.size(), std::size_t{merge_capacity});
    auto now = parts.first(length);
    if (length <= small_capacity)
      merge_by_table<Real, small_capacity>(scope, now, out, count_before);
    else
      merge_by_table<Real, merge_capacity>(scope, now, out, count_before);
    for (const auto& part : now)
      count_before += part.count;
    parts = parts.subspan(length);
  }
}

template <class Real>
void finalize_of(const device_scope& scope, const const_moments_view& total,
                 const finalize_options& options, void* mean, void* inv_std,
                 const running_view& running) {
  finalize_task<Real> task{total.count,
                           total.channels,
                           static_cast<const Real*>(total.mean),
                           static_cast<const Real*>(total.m2),
                           options,
                           static_cast<Real*>(mean),
                           static_cast<Real*>(inv_std),
                           static_cast<Real*>(running.mean),
                           static_cast<Real*>(running.var)};
  launch(scope, "finalize_moments_kernel", finalize_moments_kernel<Real>,
         divide_up(total.channels, block_threads), block_threads, task);
}

} // namespace

void merge_moments(const execution& run, part_list parts,
                   const moments_view& out) {
  device_scope scope{run, "merge_moments"};
  // Two launches can follow the tree with the output between them; a third
  // would need memory for a second branch.
  constexpr std::size_t most = 2 * merge_capacity;
  if (parts.size() > most)
    throw error{errc::invalid_argument,
                "merge_moments: parts: expected at most "
                    + std::to_string(most)
                    + " on a CUDA device (merge aligned groups of a power of "
                      "two first), got "
                    + std::to_string(parts.size())};
  if (out.type == dtype::float64)
    merge_in_order<double>(scope, parts, out);
  else
    merge_in_order<float>(scope, parts, out);
}

void finalize_moments(const execution& run, const const_moments_view& total,
                      const finalize_options& options, void* mean,
                      void* inv_std, const running_view& running) {
  device_scope scope{run, "finalize_moments"};
  if (total.type == dtype::float64)
    finalize_of<double>(scope, total, options, mean, inv_std, running);
  else
    finalize_of<float>(scope, total, options, mean, inv_std, running);
}

} // namespace syncnorm::cuda
