#pragma once

// A thread's share of a reduction over rows (channels last), and the tree in
// which a block merges the shares.

#include "kernels/cuda/divisor.hpp"
#include "kernels/cuda/reductions.hpp"

namespace syncnorm::cuda {

/// The partial results of a block, `width` columns for each thread. In shared
/// memory; column k of all threads stands together, so that no two threads
/// of a warp meet in one bank.
template <class Reduction>
struct row_board {
  std::int64_t counts[block_threads];
  typename Reduction::state states[Reduction::width * block_threads];
};

/// A reduction over rows, cut as `plan` says.
template <class Reduction>
struct row_task {
  using state = typename Reduction::state;
  using constants = typename Reduction::constants;

  static constexpr int width = Reduction::width;

  Reduction reduction;
  reduce_plan plan;
  /// Rows of one sample.
  divisor per_sample;
  /// True channels.
  divisor channels;
  /// [splits, columns]; null if a block's result is the channel's.
  state* partials = nullptr;

  row_task(const Reduction& what, const reduce_plan& how, void* scratch)
      : reduction{what},
        plan{how},
        per_sample{how.shape.spatial},
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
    constexpr int flight = loads_in_flight(width);
    auto column = first_column(tile, thread);
    int row_in_tile = thread / plan.tile_width;
    std::int64_t count = 0;
    state states[width];
    if (row_in_tile < plan.tile_height && column < plan.shape.channels) {
      constants known[width];
      SYNCNORM_UNROLL
      for (int k = 0; k < width; ++k)
        known[k] = reduction.open(channels.remainder(column + k));
      std::int64_t step = plan.tile_height;
      auto row = split * plan.chunk + row_in_tile;
      auto end = split * plan.chunk + plan.units_of(split);
      for (; row + (flight - 1) * step < end; row += flight * step)
        add_round<flight>(states, count, known, column, row);
      constexpr int rest = loads_behind(width);
      for (; row < end; row += rest * step)
        add_rest<rest>(states, count, known, column, row, end);
    }
    board.counts[thread] = count;
    SYNCNORM_UNROLL
    for (int k = 0; k < width; ++k)
      board.states[k * block_threads + thread] = states[k];
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
        reduction.close(column + k, total);
      else
        partials[split * plan.shape.channels + column + k] = total;
    }
  }

private:
  [[nodiscard]] SYNCNORM_HOST_DEVICE std::int64_t
  first_column(std::int64_t tile, int thread) const {
    return (tile * plan.tile_width + thread % plan.tile_width) * width;
  }

  using fetched = typename Reduction::fetched;

  /// A full round of loads, of which all are under way before one is used.
  template <int Loads>
  SYNCNORM_HOST_DEVICE void
  add_round(state (&states)[width], std::int64_t& count,
            const constants (&known)[width], std::int64_t column,
            std::int64_t row) const {
    fetched in[Loads];
    SYNCNORM_UNROLL
    for (int i = 0; i < Loads; ++i)
      in[i] = fetch(column, row + i * plan.tile_height);
    add<Loads>(states, count, known, in);
  }

  /// Up to `Most` loads behind the last full round, likewise.
  template <int Most>
  SYNCNORM_HOST_DEVICE void
  add_rest(state (&states)[width], std::int64_t& count,
           const constants (&known)[width], std::int64_t column,
           std::int64_t row, std::int64_t end) const {
    fetched in[Most][1];
    SYNCNORM_UNROLL
    for (int i = 0; i < Most; ++i)
      if (row + i * plan.tile_height < end)
        in[i][0] = fetch(column, row + i * plan.tile_height);
    SYNCNORM_UNROLL
    for (int i = 0; i < Most; ++i)
      if (row + i * plan.tile_height < end)
        add<1>(states, count, known, in[i]);
  }

  template <int Loads>
  SYNCNORM_HOST_DEVICE static void
  add(state (&states)[width], std::int64_t& count,
      const constants (&known)[width], const fetched (&in)[Loads]) {
    auto weights =
        math::weights_of_merge<typename Reduction::real>(count, Loads);
    SYNCNORM_UNROLL
    for (int k = 0; k < width; ++k) {
      typename Reduction::template values<Loads> values;
      SYNCNORM_UNROLL
      for (int i = 0; i < Loads; ++i)
        Reduction::put(values, i, in[i], k, known[k]);
      Reduction::add(states[k], weights, values, known[k]);
    }
    count += Loads;
  }

  SYNCNORM_HOST_DEVICE typename Reduction::fetched
  fetch(std::int64_t column, std::int64_t row) const {
    auto n = per_sample.quotient(row);
    auto s = row - n * per_sample.value();
    auto offset = s * plan.shape.channels + column;
    auto flat = n * plan.shape.channels * plan.shape.spatial + offset;
    return reduction.fetch(n, offset, flat);
  }
};

} // namespace syncnorm::cuda
