#pragma once

// The kernels of all reductions over samples and spatial elements.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/merge_partials.hpp"
#include "kernels/cuda/plane_reduce.hpp"
#include "kernels/cuda/row_reduce.hpp"

#include <cub/block/block_reduce.cuh>

namespace syncnorm::cuda {

/// Blocks of a reduction that every multiprocessor can hold: 1024 threads
/// before compute capability 8.0, at least 1536 from then on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline constexpr int most_blocks = 4;
#else
inline constexpr int most_blocks = 6;
#endif

/// Blocks of a reduction over planes that a multiprocessor shall hold at a
/// time: at least four, as `reduce_blocks` counts on, or as many as spill no
/// registers on compute capability 9.0.
template <class Reduction>
inline constexpr int plane_blocks = sizeof(typename Reduction::real) == 8 ? 2
                                    : Reduction::width == 4 ? most_blocks
                                                            : 4;

/// One block for each channel and run; neighbouring blocks take neighbouring
/// channels.
template <class Reduction>
__global__ void __launch_bounds__(block_threads, plane_blocks<Reduction>)
    plane_reduce_kernel(const __grid_constant__ plane_task<Reduction> task) {
  wait_for_earlier_kernels();
  let_next_kernel_come();
  using share_type = typename plane_task<Reduction>::share_type;
  using block_reduce = cub::BlockReduce<share_type, block_threads>;
  __shared__ typename block_reduce::TempStorage shared;
  std::int64_t split = blockIdx.x / task.plan.shape.channels;
  std::int64_t channel = blockIdx.x - split * task.plan.shape.channels;
  auto known = task.reduction.before_close(channel);
  auto mine = task.share(channel, split, int(threadIdx.x));
  auto total = block_reduce{shared}.Reduce(mine, merge_counted<Reduction>{});
  if (threadIdx.x == 0)
    task.put(channel, split, known, total);
}

/// Blocks of a reduction over rows, likewise: four, or as many as spill few
/// registers.
template <class Reduction>
inline constexpr int row_blocks = sizeof(typename Reduction::real) == 8 ? 2
                                  : Reduction::width == 8
                                          && Reduction::tensors == 2
                                      ? 3
                                      : 4;

/// One block for each tile of columns and run of rows.
template <class Reduction>
__global__ void __launch_bounds__(block_threads, row_blocks<Reduction>)
    row_reduce_kernel(const __grid_constant__ row_task<Reduction> task) {
  wait_for_earlier_kernels();
  let_next_kernel_come();
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
  wait_for_earlier_kernels();
  // Beside large blocks those of the next kernel would be spread unevenly,
  // which takes longer than to wait for them.
  if constexpr (Threads == warp_threads)
    let_next_kernel_come();
  using block_reduce = cub::BlockReduce<counted<Reduction>, Threads>;
  __shared__ typename block_reduce::TempStorage shared;
  std::int64_t channel = blockIdx.x;
  auto known = task.reduction.before_close(channel);
  auto mine = task.share(channel, gridDim.x, int(threadIdx.x), Threads);
  auto total = block_reduce{shared}.Reduce(mine, merge_counted<Reduction>{});
  if (threadIdx.x == 0)
    task.reduction.close(channel, known, total.state);
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
    if (task.for_a_warp())
      launch(scope, "merge_partials_kernel",
             merge_partials_kernel<Reduction, warp_threads>, task.channels(),
             warp_threads, task);
    else
      launch(scope, "merge_partials_kernel",
             merge_partials_kernel<Reduction, block_threads>, task.channels(),
             block_threads, task);
  }
};

} // namespace syncnorm::cuda
