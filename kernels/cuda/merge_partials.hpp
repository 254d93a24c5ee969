#pragma once

// The second pass of a reduction: from the partial results of the runs to the
// result of a channel.

#include "kernels/cuda/plane_reduce.hpp"

namespace syncnorm::cuda {

/// The partial results of a channel stand in `splits` rows of `fold` columns
/// each, all relative to the same constants.
template <class Reduction>
struct merge_partials_task {
  Reduction reduction;
  reduce_plan plan;
  const typename Reduction::state* partials = nullptr;

  [[nodiscard]] SYNCNORM_HOST_DEVICE std::int64_t channels() const {
    return plan.shape.channels / plan.shape.fold;
  }

  /// Merges every `threads`-th partial result of `channel`, in order.
  SYNCNORM_HOST_DEVICE counted<Reduction> share(std::int64_t channel,
                                                int thread, int threads) const {
    counted<Reduction> mine;
    auto end = plan.splits * plan.shape.fold;
    for (std::int64_t i = thread; i < end; i += threads) {
      auto split = i / plan.shape.fold;
      auto column = i % plan.shape.fold * channels() + channel;
      counted<Reduction> next{
          plan.count_of(split),
          partials[split * plan.shape.channels + column]};
      mine = merge_counted<Reduction>{}(mine, next);
    }
    return mine;
  }
};

} // namespace syncnorm::cuda
