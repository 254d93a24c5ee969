#pragma once

// A thread's share of a reduction over planes (channels first).

#include "kernels/cuda/divisor.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/rounds.hpp"
#include "kernels/cuda/stored.hpp"

namespace syncnorm::cuda {

/// Partial result of a thread, a warp or a block, and how many elements it
/// covers.
/// @tparam Count  `int` within a block, whose run is short enough.
template <class Reduction, class Count = std::int64_t>
struct counted {
  Count count = 0;
  typename Reduction::state state;
};

/// The partial result of two sets of elements; either may be empty.
template <class Reduction>
struct merge_counted {
  template <class Count>
  SYNCNORM_HOST_DEVICE counted<Reduction, Count>
  operator()(const counted<Reduction, Count>& a,
             const counted<Reduction, Count>& b) const {
    using real = typename Reduction::real;
    if (b.count == 0)
      return a;
    if (a.count == 0)
      return b;
    auto weights = math::weights_of_merge<real>(a.count, b.count);
    return {a.count + b.count, Reduction::merge(a.state, b.state, weights)};
  }
};

/// A reduction over planes, cut as `plan` says.
template <class Reduction>
struct plane_task {
  using state = typename Reduction::state;
  using share_type = counted<Reduction, int>;

  Reduction reduction;
  reduce_plan plan;
  /// Units of one plane.
  divisor per_plane;
  /// Elements from a plane of a channel to its next.
  std::int64_t plane_stride = 0;
  /// From one unit of a thread to its next: units beyond whole planes, and
  /// elements.
  std::int64_t unit_step = 0;
  std::int64_t step = 0;
  /// [C, splits]; null if a block's result is the channel's.
  stored<state>* partials = nullptr;

  plane_task(const Reduction& what, const reduce_plan& how, void* scratch)
      : reduction{what},
        plan{how},
        per_plane{how.shape.spatial / Reduction::width},
        plane_stride{how.shape.channels * how.shape.spatial},
        unit_step{block_threads % per_plane.value()},
        step{block_threads / per_plane.value() * plane_stride
             + unit_step * Reduction::width},
        partials{how.direct() ? nullptr
                              : static_cast<stored<state>*>(scratch)} {}

  [[nodiscard]] std::int64_t blocks() const {
    return plan.shape.channels * plan.splits;
  }

  /// The elements that thread `thread` of the block for (`channel`, `split`)
  /// takes: every `block_threads`-th unit of the run.
  SYNCNORM_HOST_DEVICE share_type share(std::int64_t channel,
                                        std::int64_t split, int thread) const {
    return reduction.samples.dense ? share_of<true>(channel, split, thread)
                                   : share_of<false>(channel, split, thread);
  }

  /// Stores the result of a block.
  SYNCNORM_HOST_DEVICE void put(std::int64_t channel, std::int64_t split,
                                const typename Reduction::closing& known,
                                const share_type& total) const {
    if (partials == nullptr)
      reduction.close(channel, known, total.state);
    else
      partials[channel * plan.splits + split] = {total.state};
  }

private:
  static constexpr int width = Reduction::width;

  using constants = typename Reduction::constants;
  using fetched = typename Reduction::fetched;

  /// Where a thread is: a unit of its plane, and that unit's flat index.
  struct cursor {
    std::int64_t unit;
    std::int64_t flat;
  };

  template <bool Dense>
  SYNCNORM_HOST_DEVICE share_type share_of(std::int64_t channel,
                                           std::int64_t split,
                                           int thread) const {
    auto known = reduction.open(channel);
    share_type mine;
    auto next = start(channel, split * plan.chunk + thread);
    auto fetch = [&] {
      auto flat = next.flat;
      go_on(next);
      return reduction.template fetch<Dense>(flat);
    };
    auto add = [&](const auto& in) { add_to(mine, known, in); };
    // An int suffices for what one block does.
    int left = int(plan.units_of(split)) - thread;
    add_in_rounds<plane_loads(width), width>(left, block_threads, fetch, add);
    return mine;
  }

  [[nodiscard]] SYNCNORM_HOST_DEVICE cursor start(std::int64_t channel,
                                                  std::int64_t unit) const {
    auto n = per_plane.quotient(unit);
    auto there = unit - n * per_plane.value();
    return {there,
            n * plane_stride + channel * plan.shape.spatial + there * width};
  }

  SYNCNORM_HOST_DEVICE void go_on(cursor& next) const {
    next.unit += unit_step;
    next.flat += step;
    if (next.unit >= per_plane.value()) {
      next.unit -= per_plane.value();
      next.flat += plane_stride - plan.shape.spatial;
    }
  }

  template <int Loads>
  SYNCNORM_HOST_DEVICE static void
  add_to(share_type& mine, const constants& known, const fetched (&in)[Loads]) {
    typename Reduction::template values<Loads * width> values;
    SYNCNORM_UNROLL
    for (int i = 0; i < Loads * width; ++i)
      Reduction::put(values, i, in[i / width], i % width, known);
    Reduction::add(mine.state, mine.count, values, known);
    mine.count += Loads * width;
  }
};

} // namespace syncnorm::cuda
