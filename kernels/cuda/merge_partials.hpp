#pragma once

// The second pass of a reduction: from the partial results of the runs to the
// result of a channel.

#include "kernels/cuda/plane_reduce.hpp"

namespace syncnorm::cuda {

/// Threads of a block that merges the partial results of a channel, where there
/// are more than a warp merges as fast.
inline constexpr int merge_threads = 128;

/// The partial results of a channel stand in `splits` rows of `fold` columns
/// each, all relative to the same constants.
template <class Reduction>
struct merge_partials_task {
  using state = typename Reduction::state;
  /// Counts are of the type that weights are calculated in, which makes a
  /// merge shorter.
  using share_type = counted<Reduction, typename Reduction::real>;

  Reduction reduction;
  reduce_plan plan;
  divisor fold;
  const state* partials = nullptr;

  merge_partials_task(const Reduction& what, const reduce_plan& how,
                      const void* scratch)
      : reduction{what},
        plan{how},
        fold{how.shape.fold},
        partials{static_cast<const state*>(scratch)} {}

  [[nodiscard]] std::int64_t channels() const {
    return plan.shape.channels / fold.value();
  }

  [[nodiscard]] SYNCNORM_HOST_DEVICE std::int64_t partials_per_channel() const {
    return plan.splits * fold.value();
  }

  /// True if a warp does for the partial results of a channel.
  [[nodiscard]] bool for_a_warp() const {
    return partials_per_channel() <= 2 * warp_threads;
  }

  /// Merges every `threads`-th partial result of `channel` of `channels`, in
  /// order; the next ones are under way before one is used.
  SYNCNORM_HOST_DEVICE share_type share(std::int64_t channel,
                                        std::int64_t channels, int thread,
                                        int threads) const {
    share_type mine;
    for (std::int64_t first = thread; first < partials_per_channel();
         first += flight * threads) {
      share_type next[flight];
      SYNCNORM_UNROLL
      for (int i = 0; i < flight; ++i)
        if (first + i * threads < partials_per_channel())
          next[i] = partial(channel, channels, first + i * threads);
      SYNCNORM_UNROLL
      for (int i = 0; i < flight; ++i)
        mine = merge_counted<Reduction>{}(mine, next[i]);
    }
    return mine;
  }

private:
  static constexpr int flight = 4;

  using real = typename Reduction::real;

  [[nodiscard]] SYNCNORM_HOST_DEVICE share_type partial(std::int64_t channel,
                                                        std::int64_t channels,
                                                        std::int64_t i) const {
    auto split = fold.quotient(i);
    auto column = (i - split * fold.value()) * channels + channel;
    return {real(plan.count_of(split)),
            partials[split * plan.shape.channels + column]};
  }
};

} // namespace syncnorm::cuda
