#include "kernels/backend.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/partition.hpp"
#include "kernels/cuda/prepare_merge.hpp"

namespace syncnorm::cuda {

namespace {

/// A block for each `merge_channels` channels; a thread for each group of
/// parts and each of these channels.
template <class Real, int Capacity>
__global__ void __launch_bounds__(Capacity / merge_group * merge_channels)
    merge_moments_kernel(
        const __grid_constant__ merge_parts_task<Real, Capacity> task) {
  wait_for_earlier_kernels();
  let_next_kernel_come();
  constexpr int most_groups = Capacity / merge_group;
  using node = tree_node<Real>;
  // Raw, since shared memory cannot be initialized.
  __shared__ alignas(
      node) unsigned char shared[sizeof(node) * most_groups * merge_channels];
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
  wait_for_earlier_kernels();
  let_next_kernel_come();
  auto channel = std::int64_t{blockIdx.x} * block_threads + threadIdx.x;
  if (channel < task.channels)
    task.run(channel);
}

struct run_merge {
  const device_scope& scope;

  template <class Real, int Capacity>
  void operator()(const merge_parts_task<Real, Capacity>& task) const {
    launch(scope, "merge_moments_kernel", merge_moments_kernel<Real, Capacity>,
           divide_up(task.channels, merge_channels),
           task.groups() * merge_channels, task);
  }
};

struct run_finalize {
  const device_scope& scope;

  template <class Real>
  void operator()(const finalize_task<Real>& task) const {
    launch(scope, "finalize_moments_kernel", finalize_moments_kernel<Real>,
           divide_up(task.channels, block_threads), block_threads, task);
  }
};

} // namespace

void merge_moments(const execution& run, part_list parts,
                   const moments_view& out) {
  device_scope scope{run, "merge_moments"};
  if (out.type == dtype::float64)
    with_merges<double>(parts, out, run_merge{scope});
  else
    with_merges<float>(parts, out, run_merge{scope});
}

void finalize_moments(const execution& run, const const_moments_view& total,
                      const finalize_options& options, void* mean,
                      void* inv_std, const running_view& running) {
  device_scope scope{run, "finalize_moments"};
  run_finalize launcher{scope};
  if (total.type == dtype::float64)
    with_finalize<double>(total, options, mean, inv_std, running, launcher);
  else
    with_finalize<float>(total, options, mean, inv_std, running, launcher);
}

} // namespace syncnorm::cuda
