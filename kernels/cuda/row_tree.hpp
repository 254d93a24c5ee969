#pragma once

// How a block merges its threads' shares in a reduction over rows (channels
// last): which of them, and how many rows they cover.

#include "kernels/cuda/partition.hpp"

#include <cstdint>

namespace syncnorm::cuda {

/// How the rows of a run are distributed to a tile's rows of threads.
struct row_shares {
  /// Rows of the run.
  int rows = 0;
  /// Rows for each row of threads,
  int each = 0;
  /// and one more for each of the first `rest`.
  int rest = 0;

  row_shares() = default;

  row_shares(std::int64_t count, int tile_height)
      : rows{int(count)},
        each{int(count / tile_height)},
        rest{int(count % tile_height)} {}
};

/// A level of the tree: from `height` rows of partial results to `next`. Row i
/// of the latter covers the rows i, i + next, i + 2 * next, ... below `height`.
/// @tparam Radix  the most rows that are merged into one.
/// @tparam First  whether the rows are those of the threads; in later levels
///                their number is a power of two.
template <int Radix, bool First>
struct row_level {
  static constexpr int radix = Radix;

  int height = 0;
  int next = 0;
  /// The binary logarithm of `height`, in later levels.
  int height_log = 0;

  /// Rows of the run that row `i` covers.
  [[nodiscard]] SYNCNORM_HOST_DEVICE int
  count_of(int i, const row_shares& shares, int tile_height) const {
    if constexpr (First)
      return shares.each + (i < shares.rest ? 1 : 0);
    else
      return shares.each * congruent(i, tile_height)
             + congruent(i, shares.rest);
  }

private:
  /// Numbers below `end` that are `i` modulo `height`.
  [[nodiscard]] SYNCNORM_HOST_DEVICE int congruent(int i, int end) const {
    return end > i ? ((end - i - 1) >> height_log) + 1 : 0;
  }
};

/// The levels for a tile of some height.
/// @tparam Most  the rows that are merged at once where that saves a level: as
///               many as a thread has registers for.
template <int Most>
class row_tree {
public:
  explicit row_tree(int tile_height) : height_{tile_height} {
    int radix = at_once() ? Most : usual;
    while (radix << first_log_ < tile_height)
      ++first_log_;
  }

  /// Calls `merge(level)` for each level in turn.
  template <class Merge>
  SYNCNORM_HOST_DEVICE void for_each_level(const Merge& merge) const {
    int log = first_log_;
    if (at_once())
      merge(row_level<Most, true>{height_, 1, 0});
    else
      merge(row_level<usual, true>{height_, 1 << log, 0});
    while (log > 0) {
      int next_log = log > usual_log ? log - usual_log : 0;
      merge(row_level<usual, false>{1 << log, 1 << next_log, log});
      log = next_log;
    }
  }

private:
  static constexpr int usual_log = 3;
  static constexpr int usual = 1 << usual_log;

  [[nodiscard]] SYNCNORM_HOST_DEVICE bool at_once() const {
    return height_ > usual && height_ <= Most;
  }

  int height_;
  /// The binary logarithm of the rows that the first level leaves.
  int first_log_ = 0;
};

} // namespace syncnorm::cuda
