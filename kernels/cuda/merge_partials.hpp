#pragma once

// The second pass of a reduction: from the partial results of the runs to the
// result of a channel.

#include "kernels/cuda/divisor.hpp"
#include "kernels/cuda/known_merge.hpp"
#include "kernels/cuda/partition.hpp"
#include "kernels/cuda/stored.hpp"

#include <cstdint>

namespace syncnorm::cuda {

/// Threads of a block that merges a channel's partial results, where these are
/// too many for a warp to be as fast.
inline constexpr int merge_threads = 128;

/// Which partial results a thread merges first, and of how many elements.
template <class Real>
struct partials_place {
  /// Loads that are in flight at the same time.
  static constexpr int flight = 4;

  std::int64_t at[flight];
  known_tree<Real, flight> merges;
  /// Elements of all that the thread merges.
  Real count = 0;
};

/// The partial results of a channel are in `fold` columns of `splits` each, all
/// relative to the same constants.
template <class Reduction>
struct merge_partials_task {
  using state = typename Reduction::state;
  /// Counts are of the type that weights are calculated in, which makes a
  /// merge shorter.
  using real = typename Reduction::real;
  using place = partials_place<real>;

  Reduction reduction;
  reduce_plan plan;
  divisor fold;
  const stored<state>* partials = nullptr;

  merge_partials_task(const Reduction& what, const reduce_plan& how,
                      const void* scratch)
      : reduction{what},
        plan{how},
        fold{how.shape.fold},
        partials{static_cast<const stored<state>*>(scratch)} {}

  [[nodiscard]] std::int64_t channels() const {
    return plan.shape.channels / fold.value();
  }

  [[nodiscard]] SYNCNORM_HOST_DEVICE std::int64_t partials_per_channel() const {
    return plan.splits * fold.value();
  }

  /// True if a warp suffices for the partial results of a channel.
  [[nodiscard]] bool for_a_warp() const {
    return partials_per_channel() <= 2 * warp_threads;
  }

  /// A thread takes every `threads`-th partial result of `channel` of
  /// `channels`, in order: returns the first ones and their merges. Reads only
  /// the task, nothing that earlier kernels write.
  [[nodiscard]] SYNCNORM_HOST_DEVICE place place_of(std::int64_t channel,
                                                    std::int64_t channels,
                                                    int thread,
                                                    int threads) const {
    place result;
    real counts[place::flight];
    SYNCNORM_UNROLL
    for (int i = 0; i < place::flight; ++i) {
      auto which = thread + std::int64_t{i} * threads;
      auto there = which < partials_per_channel();
      result.at[i] = there ? index_of(which, channel, channels) : 0;
      counts[i] = there ? count_of(which) : real(0);
    }
    result.merges = known_tree<real, place::flight>{counts};
    result.count = result.merges.count;
    for (auto i = after(thread, threads); i < partials_per_channel();
         i += threads)
      result.count += count_of(i);
    return result;
  }

  /// Merges the partial results that `place_of` returns and those after them,
  /// of which as many are in flight before one is used.
  SYNCNORM_HOST_DEVICE state share(const place& mine, std::int64_t channel,
                                   std::int64_t channels, int thread,
                                   int threads) const {
    state next[place::flight];
    SYNCNORM_UNROLL
    for (int i = 0; i < place::flight; ++i)
      if (thread + std::int64_t{i} * threads < partials_per_channel())
        next[i] = partials[mine.at[i]].value;
    mine.merges.template apply<Reduction>(next);
    auto count = mine.merges.count;
    auto total = next[0];
    for (auto first = after(thread, threads); first < partials_per_channel();
         first += std::int64_t{place::flight} * threads) {
      SYNCNORM_UNROLL
      for (int i = 0; i < place::flight; ++i) {
        auto which = first + std::int64_t{i} * threads;
        if (which < partials_per_channel())
          next[i] = partials[index_of(which, channel, channels)].value;
      }
      SYNCNORM_UNROLL
      for (int i = 0; i < place::flight; ++i) {
        auto which = first + std::int64_t{i} * threads;
        auto more = which < partials_per_channel() ? count_of(which) : real(0);
        known_merge<real>{count, more}.template apply<Reduction>(total,
                                                                 next[i]);
        count += more;
      }
    }
    return total;
  }

private:
  /// The number of the thread's first partial result that is not in its place.
  [[nodiscard]] SYNCNORM_HOST_DEVICE static std::int64_t after(int thread,
                                                               int threads) {
    return thread + std::int64_t{place::flight} * threads;
  }

  [[nodiscard]] SYNCNORM_HOST_DEVICE real count_of(std::int64_t i) const {
    return real(plan.count_of(fold.quotient(i)));
  }

  [[nodiscard]] SYNCNORM_HOST_DEVICE std::int64_t
  index_of(std::int64_t i, std::int64_t channel, std::int64_t channels) const {
    auto split = fold.quotient(i);
    auto column = (i - split * fold.value()) * channels + channel;
    return column * plan.splits + split;
  }
};

} // namespace syncnorm::cuda
