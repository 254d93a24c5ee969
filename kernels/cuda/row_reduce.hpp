#pragma once

// A thread's share of a reduction over rows (channels last), and the tree in
// which a block merges the shares.

#include "kernels/cuda/divisor.hpp"
#include "kernels/cuda/known_merge.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/rounds.hpp"
#include "kernels/cuda/row_tree.hpp"
#include "kernels/cuda/stored.hpp"

namespace syncnorm::cuda {

/// The partial results of a block, `width` columns for each thread. In shared
/// memory; column k of all threads is contiguous, so that no two threads of a
/// warp use the same bank.
template <class Reduction>
struct row_board {
  stored<typename Reduction::state> states[Reduction::width * block_threads];
  /// Of the tile's columns, in their order.
  typename Reduction::closing closings[Reduction::width * warp_threads];
};

/// Where a thread is.
struct row_place {
  std::int64_t split = 0;
  /// The first column of its vector, that column's true channel, and the index
  /// of the thread's first element.
  std::int64_t column = 0;
  std::int64_t channel = 0;
  std::int64_t flat = 0;
  /// Its row and its column in the tile.
  int row = 0;
  int lane = 0;
  /// Rows from its first one to the end of the run; 0 or less if it has none.
  int left = 0;
  row_shares shares;
};

/// A reduction over rows, cut as `plan` says. A block has a thread for each
/// vector and row of a tile.
template <class Reduction>
struct row_task {
  using state = typename Reduction::state;
  using constants = typename Reduction::constants;

  static constexpr int width = Reduction::width;

  /// Loads of each tensor that are in flight at the same time: over all tensors
  /// as many bytes as where there is only one.
  static constexpr int flight = row_loads / Reduction::tensors;

  Reduction reduction;
  reduce_plan plan;
  /// Elements from one row of a thread to its next.
  std::int64_t step = 0;
  /// True channels.
  divisor channels;
  /// [columns, splits]; null if a block's result is the channel's.
  stored<state>* partials = nullptr;
  row_tree<sizeof(typename Reduction::real) == 8 ? 8 : 16> tree;
  /// Of all runs but the last, and of the last.
  row_shares usual;
  row_shares last;

  row_task(const Reduction& what, const reduce_plan& how, void* scratch)
      : reduction{what},
        plan{how},
        step{how.tile_height * how.shape.channels},
        channels{how.shape.channels / how.shape.fold},
        partials{how.direct() ? nullptr : static_cast<stored<state>*>(scratch)},
        tree{how.tile_height},
        usual{how.units_of(0), how.tile_height},
        last{how.units_of(how.splits - 1), how.tile_height} {}

  /// Reads only the task, nothing that earlier kernels write.
  [[nodiscard]] SYNCNORM_HOST_DEVICE row_place place_of(std::int64_t tile,
                                                        std::int64_t split,
                                                        int lane,
                                                        int row) const {
    row_place place;
    place.split = split;
    place.row = row;
    place.lane = lane;
    place.column = (tile * plan.tile_width + lane) * width;
    place.channel =
        plan.shape.fold == 1 ? place.column : channels.remainder(place.column);
    place.flat =
        (split * plan.chunk + row) * plan.shape.channels + place.column;
    place.shares = split + 1 == plan.splits ? last : usual;
    if (place.column < plan.shape.channels)
      place.left = place.shares.rows - row;
    return place;
  }

  /// Leaves on the board the results of the elements that a thread takes: one
  /// vector of columns in every `tile_height`-th row of the run. Returns how
  /// many rows these were.
  SYNCNORM_HOST_DEVICE int share(const row_place& place,
                                 row_board<Reduction>& board) const {
    prepare_close(place, board);
    auto mine = reduction.samples.dense ? share_of<true>(place)
                                        : share_of<false>(place);
    SYNCNORM_UNROLL
    for (int k = 0; k < width; ++k)
      board.states[k * block_threads + number_of(place)] = {mine.states[k]};
    return mine.count;
  }

  /// One level of the tree. Row r of threads merges column r % width of each
  /// vector.
  template <class Level>
  SYNCNORM_HOST_DEVICE void merge(const Level& level, const row_place& place,
                                  row_board<Reduction>& board) const {
    for (int r = place.row; r < level.next * width; r += plan.tile_height)
      merge_into(r / width, r % width, level, place, board);
  }

  /// Stores what this thread itself has merged in the last level.
  SYNCNORM_HOST_DEVICE void put(const row_place& place,
                                const row_board<Reduction>& board) const {
    if (place.row >= width || place.column >= plan.shape.channels)
      return;
    const auto& total = board.states[place.row * block_threads + place.lane];
    auto column = place.column + place.row;
    if (partials == nullptr)
      reduction.close(column, board.closings[place.lane * width + place.row],
                      total.value);
    else
      partials[column * plan.splits + place.split] = total;
  }

private:
  using fetched = typename Reduction::fetched;

  /// Partial results of a thread: one for each column, all of `count` rows.
  struct share_type {
    int count = 0;
    state states[width];
  };

  /// The number of the thread in its block.
  [[nodiscard]] SYNCNORM_HOST_DEVICE int
  number_of(const row_place& place) const {
    return place.row * plan.tile_width + place.lane;
  }

  /// Loads what `put` needs, long before it runs.
  SYNCNORM_HOST_DEVICE void prepare_close(const row_place& place,
                                          row_board<Reduction>& board) const {
    int thread = number_of(place);
    auto column = place.column - place.lane * width + thread;
    if (partials == nullptr && thread < plan.tile_width * width
        && column < plan.shape.channels)
      board.closings[thread] = reduction.before_close(column);
  }

  template <bool Dense>
  SYNCNORM_HOST_DEVICE share_type share_of(const row_place& place) const {
    share_type mine;
    if (place.left <= 0)
      return mine;
    constants known[width];
    open(place.channel, known);
    auto next = place.flat;
    auto fetch = [&] {
      auto flat = next;
      next += step;
      return reduction.template fetch<Dense>(flat);
    };
    auto add = [&](const auto& in) { add_to(mine, known, in); };
    add_in_rounds<flight, width>(place.left, plan.tile_height, fetch, add);
    return mine;
  }

  SYNCNORM_HOST_DEVICE void open(std::int64_t channel,
                                 constants (&known)[width]) const {
    SYNCNORM_UNROLL
    for (int k = 0; k < width; ++k) {
      known[k] = reduction.open(channel);
      channel = channel + 1 == channels.value() ? 0 : channel + 1;
    }
  }

  /// Merges column `k` of the thread's vector into row `row` of the next level.
  template <class Level>
  SYNCNORM_HOST_DEVICE void merge_into(int row, int k, const Level& level,
                                       const row_place& place,
                                       row_board<Reduction>& board) const {
    constexpr int radix = Level::radix;
    using real = typename Reduction::real;
    auto* column = board.states + k * block_threads + place.lane;
    state parts[radix];
    real counts[radix];
    SYNCNORM_UNROLL
    for (int i = 0; i < radix; ++i) {
      int from = row + i * level.next;
      auto there = from < level.height;
      counts[i] = 0;
      if (there) {
        parts[i] = column[from * plan.tile_width].value;
        counts[i] = real(level.count_of(from, place.shares, plan.tile_height));
      }
    }
    known_tree<real, radix>{counts}.template apply<Reduction>(parts);
    column[row * plan.tile_width] = {parts[0]};
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
