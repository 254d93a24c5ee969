#pragma once

// The kernels of all reductions over samples and spatial elements.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/merge_partials.hpp"
#include "kernels/cuda/plane_reduce.hpp"
#include "kernels/cuda/row_reduce.hpp"

#include <cub/block/block_reduce.cuh>
#include <cub/util_ptx.cuh>

namespace syncnorm::cuda {

/// Blocks of a reduction that every multiprocessor can hold: 1024 threads
/// before compute capability 8.0, at least 1536 from then on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline constexpr int most_blocks = 4;
#else
inline constexpr int most_blocks = 6;
#endif

/// Blocks of a reduction over planes that a multiprocessor shall hold at a
/// time: at least four, as the partition assumes, or as many as spill no
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

/// The same over rows, as the partition assumes.
inline constexpr int rows_at_a_time = 2;

/// One block for each tile of columns and run of rows.
template <class Reduction>
__global__ void __launch_bounds__(block_threads, rows_at_a_time)
    row_reduce_kernel(const __grid_constant__ row_task<Reduction> task) {
  auto place =
      task.place_of(blockIdx.x, blockIdx.y, int(threadIdx.x), int(threadIdx.y));
  wait_for_earlier_kernels();
  // The next kernel merges: it has few blocks.
  if (task.partials != nullptr)
    let_next_kernel_come();
  using board_type = row_board<Reduction>;
  // Raw, since shared memory cannot be initialized.
  __shared__ alignas(board_type) unsigned char shared[sizeof(board_type)];
  auto& board = *reinterpret_cast<board_type*>(shared);
  (void) task.share(place, board);
  task.tree.for_each_level([&](const auto& level) {
    __syncthreads();
    task.merge(level, place, board);
  });
  task.put(place, board);
}

/// Merges the results of a block's threads, by a tree also from warp to warp,
/// where CUB's block reductions go one by one. Made before the results are
/// there; all threads call it.
template <class Reduction, int Threads>
class block_merge {
public:
  using real = typename Reduction::real;
  using state = typename Reduction::state;

  /// @param count  elements that the thread's result will cover, no more than
  ///               that of the thread before.
  __device__ explicit block_merge(real count) {
    SYNCNORM_UNROLL
    for (int i = 0; i < levels; ++i) {
      auto other = from_lane(count, 1 << i);
      lanes_[i] = {count, other};
      count += other;
    }
    if constexpr (warps > 1)
      prepare_warps(count);
  }

  /// The block's result in thread 0; in other threads it is meaningless.
  __device__ state operator()(state total) const {
    SYNCNORM_UNROLL
    for (int i = 0; i < levels; ++i)
      lanes_[i].template apply<Reduction>(total, from_lane(total, 1 << i));
    if constexpr (warps > 1)
      total = over_warps(total);
    return total;
  }

private:
  static constexpr int warps = Threads / warp_threads;
  static constexpr int levels = 5;
  static_assert(1 << levels == warp_threads);

  /// The value of the lane `distance` further on.
  template <class T>
  __device__ static T from_lane(const T& value, int distance) {
    constexpr auto all = ~0u;
    return cub::ShuffleDown<warp_threads>(value, distance, warp_threads - 1,
                                          all);
  }

  __device__ void prepare_warps(real count) {
    __shared__ real shared[warps];
    if (threadIdx.x % warp_threads == 0)
      shared[threadIdx.x / warp_threads] = count;
    __syncthreads();
    real counts[warps];
    SYNCNORM_UNROLL
    for (int i = 0; i < warps; ++i)
      counts[i] = shared[i];
    warps_ = known_tree<real, warps>{counts};
  }

  __device__ state over_warps(const state& total) const {
    using slot = stored<state>;
    // Raw, since shared memory cannot be initialized.
    __shared__ alignas(slot) unsigned char shared[sizeof(slot) * warps];
    auto* totals = reinterpret_cast<slot*>(shared);
    if (threadIdx.x % warp_threads == 0)
      totals[threadIdx.x / warp_threads] = {total};
    __syncthreads();
    state parts[warps];
    SYNCNORM_UNROLL
    for (int i = 0; i < warps; ++i)
      parts[i] = totals[i].value;
    warps_.template apply<Reduction>(parts);
    return parts[0];
  }

  known_merge<real> lanes_[levels];
  known_tree<real, warps> warps_;
};

/// One block for each channel.
template <class Reduction, int Threads>
__global__ void __launch_bounds__(Threads) merge_partials_kernel(
    const __grid_constant__ merge_partials_task<Reduction> task) {
  auto place = task.place_of(blockIdx.x, gridDim.x, int(threadIdx.x), Threads);
  block_merge<Reduction, Threads> merge(place.count);
  wait_for_earlier_kernels();
  auto known = task.reduction.before_close(blockIdx.x);
  auto total = merge(
      task.share(place, blockIdx.x, gridDim.x, int(threadIdx.x), Threads));
  if (threadIdx.x == 0)
    task.reduction.close(blockIdx.x, known, total);
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
             {plan.tiles, plan.splits}, {plan.tile_width, plan.tile_height},
             task);
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
