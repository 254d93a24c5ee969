#pragma once

// The kernels of all reductions over samples and spatial elements.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/merge_partials.hpp"
#include "kernels/cuda/plane_reduce.hpp"
#include "kernels/cuda/row_reduce.hpp"

#include <cub/block/block_reduce.cuh>

namespace syncnorm::cuda {

/// One block for each channel and run; neighbouring blocks take neighbouring
/// channels.
template <class Reduction>
__global__ void __launch_bounds__(block_threads)
    plane_reduce_kernel(const __grid_constant__ plane_task<Reduction> task) {
  using block_reduce = cub::BlockReduce<counted<Reduction>, block_threads>;
  __shared__ typename block_reduce::TempStorage shared;
  std::int64_t split = blockIdx.x / task.plan.shape.channels;
  std::int64_t channel = blockIdx.x - split * task.plan.shape.channels;
  auto mine = task.share(channel, split, int(threadIdx.x));
  auto total = block_reduce{shared}.Reduce(mine, merge_counted<Reduction>{});
  if (threadIdx.x == 0)
    task.put(channel, split, total);
}

/// Blocks of a reduction over rows that a multiprocessor shall hold at a time:
/// four, as `reduce_blocks` counts on, or as many as spill no registers on
/// compute capability 9.0.
template <class Reduction>
inline constexpr int row_blocks = Reduction::width == 8 ? 2 : 3;

template <class T, int Width>
inline constexpr int row_blocks<moments_of<T, float, Width>> = 4;

template <class T, int Width>
inline constexpr int row_blocks<moments_of<T, double, Width>> = 2;

/// One block for each tile of columns and run of rows.
template <class Reduction>
__global__ void __launch_bounds__(block_threads, row_blocks<Reduction>)
    row_reduce_kernel(const __grid_constant__ row_task<Reduction> task) {
  using board_type = row_board<Reduction>;
  // Raw, since shared memory cannot be initialized.
  __shared__ alignas(board_type) unsigned char shared[sizeof(board_type)];
  auto& board = *reinterpret_cast<board_type*>(shared);
  std::int64_t split = blockIdx.x / task.plan.tiles;
  std::int64_t tile = blockIdx.x - split * task.plan.tiles;
  auto thread = int(threadIdx.x);
  task.share(tile, split, thread, board);
  for (int distance = task.first_distance(); distance > 0; distance /= 2) {
    __syncthreads();
    task.merge(thread, distance, board);
  }
  // The first row of threads stores what it merged itself.
  task.put(tile, split, thread, board);
}

/// One block for each channel.
template <class Reduction, int Threads>
__global__ void __launch_bounds__(Threads) merge_partials_kernel(
    const __grid_constant__ merge_partials_task<Reduction> task) {
  using block_reduce = cub::BlockReduce<counted<Reduction>, Threads>;
  __shared__ typename block_reduce::TempStorage shared;
  std::int64_t channel = blockIdx.x;
  auto mine = task.share(channel, gridDim.x, int(threadIdx.x), Threads);
  auto total = block_reduce{shared}.Reduce(mine, merge_counted<Reduction>{});
  if (threadIdx.x == 0)
    task.reduction.close(channel, total.state);
}

/// Enqueues the two passes, or the first alone where it is enough.
struct run_reduction {
  const device_scope& scope;
  void* scratch;

  template <class Reduction>
  void operator()(const Reduction& what, const reduce_plan& plan) const {
    if (plan.shape.format == memory_format::channels_first) {
      plane_task<Reduction> task{what, plan, scratch};
      launch(scope, "plane_reduce_kernel", plane_reduce_kernel<Reduction>,
             task.blocks(), block_threads, task);
    } else {
      row_task<Reduction> task{what, plan, scratch};
      launch(scope, "row_reduce_kernel", row_reduce_kernel<Reduction>,
             task.blocks(), block_threads, task);
    }
    if (!plan.direct())
      merge(merge_partials_task<Reduction>{what, plan, scratch});
  }

private:
  template <class Reduction>
  void merge(const merge_partials_task<Reduction>& task) const {
    // A warp does for a few partial results, and leaves room for others.
    if (task.partials_per_channel() <= 64)
      launch(scope, "merge_partials_kernel",
             merge_partials_kernel<Reduction, 32>, task.channels(), 32, task);
    else
      launch(scope, "merge_partials_kernel",
             merge_partials_kernel<Reduction, block_threads>, task.channels(),
             block_threads, task);
  }
};

} // namespace syncnorm::cuda
