#pragma once

// A thread's share of a reduction over rows (channels last), and the tree in
// which a block merges the shares.

#include "kernels/cuda/divisor.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/rounds.hpp"

namespace syncnorm::cuda {

/// The partial results of a block, `width` columns for each thread. In shared
/// memory; column k of all threads stands together, so that no two threads
/// of a warp meet in one bank.
template <class Reduction>
struct row_board {
  int counts[block_threads];
  typename Reduction::state states[Reduction::width * block_threads];
  /// Of the tile's columns, in their order.
  typename Reduction::closing closings[Reduction::width * warp_threads];
};

/// A reduction over rows, cut as `plan` says.
template <class Reduction>
struct row_task {
  using state = typename Reduction::state;
  using constants = typename Reduction::constants;

  static constexpr int width = Reduction::width;

  /// Loads of each tensor that are under way at the same time: as many bytes
  /// over all of them as where there is one.
  static constexpr int flight = row_loads / Reduction::tensors;

  Reduction reduction;
  reduce_plan plan;
  /// Elements from one row of a thread to its next.
  std::int64_t step = 0;
  /// True channels.
  divisor channels;
  /// [splits, columns]; null if a block's result is the channel's.
  state* partials = nullptr;

  row_task(const Reduction& what, const reduce_plan& how, void* scratch)
      : reduction{what},
        plan{how},
        step{how.tile_height * how.shape.channels},
        channels{how.shape.channels / how.shape.fold},
        partials{how.direct() ? nullptr : static_cast<state*>(scratch)} {}

  [[nodiscard]] std::int64_t blocks() const {
    return plan.tiles * plan.splits;
  }

  /// Leaves on the board the elements that thread `thread` of the block for
  /// (`tile`, `split`) takes: one vector of columns, and every
  /// `tile_height`-th row of the run. A thread that is none of the tile's
  /// leaves a count of 0.
  SYNCNORM_HOST_DEVICE void share(std::int64_t tile, std::int64_t split,
                                  int thread,
                                  row_board<Reduction>& board) const {
    prepare_close(tile, thread, board);
    auto mine = reduction.samples.dense ? share_of<true>(tile, split, thread)
                                        : share_of<false>(tile, split, thread);
    board.counts[thread] = mine.count;
    SYNCNORM_UNROLL
    for (int k = 0; k < width; ++k)
      board.states[k * block_threads + thread] = mine.states[k];
  }

  /// One level of the tree: each row of threads below `distance` takes in the
  /// one `distance` behind it. Called for distances that halve down to 1, the
  /// first being `first_distance`.
  SYNCNORM_HOST_DEVICE void merge(int thread, int distance,
                                  row_board<Reduction>& board) const {
    int row_in_tile = thread / plan.tile_width;
    if (row_in_tile >= distance || row_in_tile + distance >= plan.tile_height)
      return;
    int other = thread + distance * plan.tile_width;
    auto n_a = board.counts[thread];
    auto n_b = board.counts[other];
    if (n_b == 0)
      return;
    auto weights = math::weights_of_merge<typename Reduction::real>(n_a, n_b);
    SYNCNORM_UNROLL
    for (int k = 0; k < width; ++k) {
      auto& mine = board.states[k * block_threads + thread];
      auto& theirs = board.states[k * block_threads + other];
      mine = n_a == 0 ? theirs : Reduction::merge(mine, theirs, weights);
    }
    board.counts[thread] = n_a + n_b;
  }

  /// The smallest power of two with which `merge` reaches all rows of threads;
  /// 0 if there is only one.
  [[nodiscard]] SYNCNORM_HOST_DEVICE int first_distance() const {
    int distance = 0;
    for (int reach = 1; reach < plan.tile_height; reach *= 2)
      distance = reach;
    return distance;
  }

  /// Stores the results of a block: those that its first threads hold.
  SYNCNORM_HOST_DEVICE void put(std::int64_t tile, std::int64_t split,
                                int thread,
                                const row_board<Reduction>& board) const {
    auto column = first_column(tile, thread);
    if (thread >= plan.tile_width || column >= plan.shape.channels)
      return;
    SYNCNORM_UNROLL
    for (int k = 0; k < width; ++k) {
      const auto& total = board.states[k * block_threads + thread];
      if (partials == nullptr)
        reduction.close(column + k, board.closings[thread * width + k], total);
      else
        partials[split * plan.shape.channels + column + k] = total;
    }
  }

private:
  using fetched = typename Reduction::fetched;

  /// Partial results of a thread, a column each, of as many rows.
  struct share_type {
    int count = 0;
    state states[width];
  };

  [[nodiscard]] SYNCNORM_HOST_DEVICE std::int64_t
  first_column(std::int64_t tile, int thread) const {
    return (tile * plan.tile_width + thread % plan.tile_width) * width;
  }

  /// Loads what `put` needs, long before.
  SYNCNORM_HOST_DEVICE void prepare_close(std::int64_t tile, int thread,
                                          row_board<Reduction>& board) const {
    int columns = plan.tile_width * width;
    auto column = tile * columns + thread;
    if (partials == nullptr && thread < columns && column < plan.shape.channels)
      board.closings[thread] = reduction.before_close(column);
  }

  template <bool Dense>
  SYNCNORM_HOST_DEVICE share_type share_of(std::int64_t tile,
                                           std::int64_t split,
                                           int thread) const {
    share_type mine;
    auto column = first_column(tile, thread);
    int row_in_tile = thread / plan.tile_width;
    if (row_in_tile >= plan.tile_height || column >= plan.shape.channels)
      return mine;
    constants known[width];
    open(column, known);
    auto next =
        (split * plan.chunk + row_in_tile) * plan.shape.channels + column;
    auto fetch = [&] {
      auto flat = next;
      next += step;
      return reduction.template fetch<Dense>(flat);
    };
    auto add = [&](const auto& in) { add_to(mine, known, in); };
    // An int suffices for what one block does.
    int left = int(plan.units_of(split)) - row_in_tile;
    add_in_rounds<flight, width>(left, plan.tile_height, fetch, add);
    return mine;
  }

  SYNCNORM_HOST_DEVICE void open(std::int64_t column,
                                 constants (&known)[width]) const {
    auto channel = channels.remainder(column);
    SYNCNORM_UNROLL
    for (int k = 0; k < width; ++k) {
      known[k] = reduction.open(channel);
      channel = channel + 1 == channels.value() ? 0 : channel + 1;
    }
  }

  template <int Loads>
  SYNCNORM_HOST_DEVICE static void add_to(share_type& mine,
                                          const constants (&known)[width],
                                          const fetched (&in)[Loads]) {
    SYNCNORM_UNROLL
    for (int k = 0; k < width; ++k) {
      typename Reduction::template values<Loads> values;
      SYNCNORM_UNROLL
      for (int i = 0; i < Loads; ++i)
        Reduction::put(values, i, in[i], k, known[k]);
      Reduction::add(mine.states[k], mine.count, values, known[k]);
    }
    mine.count += Loads;
  }
};

} // namespace syncnorm::cuda
