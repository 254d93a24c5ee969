#pragma once

// The kernels of all reductions over samples and spatial elements.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/merge_partials.hpp"
#include "kernels/cuda/plane_reduce.hpp"
#include "kernels/cuda/row_reduce.hpp"

#include <cub/block/block_reduce.cuh>
#include <cub/warp/warp_reduce.cuh>

namespace syncnorm::cuda {

/// Blocks of a reduction that every multiprocessor can hold: 1024 threads
/// before compute capability 8.0, at least 1536 from then on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline constexpr int most_blocks = 4;
#else
inline constexpr int most_blocks = 6;
#endif

/// Blocks of a reduction over planes that a multiprocessor shall hold at a
/// time: at least four, as the partition counts on, or as many as spill no
/// registers on compute capability 9.0.
template <class Reduction>
inline constexpr int planes_at_a_time = sizeof(typename Reduction::real) == 8
                                            ? 2
                                        : Reduction::width == 4 ? most_blocks
                                                                : 4;

/// One block for each channel and run; neighbouring blocks take neighbouring
/// channels.
template <class Reduction>
__global__ void __launch_bounds__(block_threads, planes_at_a_time<Reduction>)
    plane_reduce_kernel(const __grid_constant__ plane_task<Reduction> task) {
  wait_for_earlier_kernels();
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

/// The same over rows, as the partition counts on.
inline constexpr int rows_at_a_time = 2;

/// One block for each tile of columns and run of rows.
template <class Reduction>
__global__ void __launch_bounds__(block_threads, rows_at_a_time)
    row_reduce_kernel(const __grid_constant__ row_task<Reduction> task) {
  wait_for_earlier_kernels();
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
  let_next_kernel_come();
}

/// Merges what the threads of a block have; the first one gets the result. By a
/// tree also from warp to warp, where CUB's reductions of blocks go one by one.
template <int Threads, class Share, class Merge>
__device__ Share merge_shares(const Share& mine, const Merge& merge) {
  constexpr int warps = Threads / warp_threads;
  using over_lanes = cub::WarpReduce<Share>;
  __shared__ typename over_lanes::TempStorage lanes[warps];
  auto warp = int(threadIdx.x) / warp_threads;
  auto total = over_lanes{lanes[warp]}.Reduce(mine, merge);
  if constexpr (warps > 1) {
    using over_warps = cub::WarpReduce<Share, warps>;
    __shared__ typename over_warps::TempStorage of_warps;
    // Raw, since shared memory cannot be initialized.
    __shared__ alignas(Share) unsigned char shared[sizeof(Share) * warps];
    auto* totals = reinterpret_cast<Share*>(shared);
    if (threadIdx.x % warp_threads == 0)
      totals[warp] = total;
    __syncthreads();
    if (threadIdx.x < warps)
      total = over_warps{of_warps}.Reduce(totals[threadIdx.x], merge);
  }
  return total;
}

/// One block for each channel.
template <class Reduction, int Threads>
__global__ void __launch_bounds__(Threads) merge_partials_kernel(
    const __grid_constant__ merge_partials_task<Reduction> task) {
  wait_for_earlier_kernels();
  std::int64_t channel = blockIdx.x;
  auto known = task.reduction.before_close(channel);
  auto mine = task.share(channel, gridDim.x, int(threadIdx.x), Threads);
  auto total = merge_shares<Threads>(mine, merge_counted<Reduction>{});
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
    if (task.for_a_warp())
      launch(scope, "merge_partials_kernel",
             merge_partials_kernel<Reduction, warp_threads>, task.channels(),
             warp_threads, task);
    else
      launch(scope, "merge_partials_kernel",
             merge_partials_kernel<Reduction, merge_threads>, task.channels(),
             merge_threads, task);
  }
};

} // namespace syncnorm::cuda
