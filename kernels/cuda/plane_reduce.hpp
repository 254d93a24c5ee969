#pragma once

// A thread's share of a reduction over planes (channels first).

#include "kernels/cuda/divisor.hpp"
#include "kernels/cuda/reductions.hpp"

namespace syncnorm::cuda {

/// Partial result of a thread, a warp or a block, and of how many elements.
template <class Reduction>
struct counted {
  std::int64_t count = 0;
  typename Reduction::state state;
};

/// The partial result of two sets of elements; either may be empty.
template <class Reduction>
struct merge_counted {
  SYNCNORM_HOST_DEVICE counted<Reduction>
  operator()(const counted<Reduction>& a, const counted<Reduction>& b) const {
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

  Reduction reduction;
  reduce_plan plan;
  /// Units of one plane.
  divisor per_plane;
  /// [splits, C]; null if a block's result is the channel's.
  state* partials = nullptr;

  plane_task(const Reduction& what, const reduce_plan& how, void* scratch)
      : reduction{what},
        plan{how},
        per_plane{how.shape.spatial / Reduction::width},
        partials{how.direct() ? nullptr : static_cast<state*>(scratch)} {}

  [[nodiscard]] std::int64_t blocks() const {
    return plan.shape.channels * plan.splits;
  }

  /// The elements that thread `thread` of the block for (`channel`, `split`)
  /// takes: every `block_threads`-th unit of the run.
  SYNCNORM_HOST_DEVICE counted<Reduction>
  share(std::int64_t channel, std::int64_t split, int thread) const {
    constexpr int flight = loads_in_flight(Reduction::width);
    auto known = reduction.open(channel);
    counted<Reduction> mine;
    auto unit = split * plan.chunk + thread;
    auto end = split * plan.chunk + plan.units_of(split);
    for (; unit + (flight - 1) * block_threads < end;
         unit += flight * block_threads)
      add_round<flight>(mine, known, channel, unit);
    constexpr int rest = loads_behind(Reduction::width);
    for (; unit < end; unit += rest * block_threads)
      add_rest<rest>(mine, known, channel, unit, end);
    return mine;
  }

  /// Stores the result of a block.
  SYNCNORM_HOST_DEVICE void put(std::int64_t channel, std::int64_t split,
                                const counted<Reduction>& total) const {
    if (partials == nullptr)
      reduction.close(channel, total.state);
    else
      partials[split * plan.shape.channels + channel] = total.state;
  }

private:
  using constants = typename Reduction::constants;
  using fetched = typename Reduction::fetched;

  /// A full round of loads, of which all are under way before one is used.
  template <int Loads>
  SYNCNORM_HOST_DEVICE void
  add_round(counted<Reduction>& mine, const constants& known,
            std::int64_t channel, std::int64_t unit) const {
    fetched in[Loads];
    SYNCNORM_UNROLL
    for (int i = 0; i < Loads; ++i)
      in[i] = fetch(channel, unit + i * block_threads);
    add<Loads>(mine, known, in);
  }

  /// Up to `Most` loads behind the last full round, likewise.
  template <int Most>
  SYNCNORM_HOST_DEVICE void
  add_rest(counted<Reduction>& mine, const constants& known,
           std::int64_t channel, std::int64_t unit, std::int64_t end) const {
    fetched in[Most][1];
    SYNCNORM_UNROLL
    for (int i = 0; i < Most; ++i)
      if (unit + i * block_threads < end)
        in[i][0] = fetch(channel, unit + i * block_threads);
    SYNCNORM_UNROLL
    for (int i = 0; i < Most; ++i)
      if (unit + i * block_threads < end)
        add<1>(mine, known, in[i]);
  }

  template <int Loads>
  SYNCNORM_HOST_DEVICE static void add(counted<Reduction>& mine,
                                       const constants& known,
                                       const fetched (&in)[Loads]) {
    constexpr int width = Reduction::width;
    typename Reduction::template values<Loads * width> values;
    SYNCNORM_UNROLL
    for (int i = 0; i < Loads * width; ++i)
      Reduction::put(values, i, in[i / width], i % width, known);
    auto weights = math::weights_of_merge<typename Reduction::real>(
        mine.count, Loads * width);
    Reduction::add(mine.state, weights, values, known);
    mine.count += Loads * width;
  }

  SYNCNORM_HOST_DEVICE typename Reduction::fetched
  fetch(std::int64_t channel, std::int64_t unit) const {
    auto n = per_plane.quotient(unit);
    auto s = (unit - n * per_plane.value()) * Reduction::width;
    auto offset = channel * plan.shape.spatial + s;
    auto flat = n * plan.shape.channels * plan.shape.spatial + offset;
    return reduction.fetch(n, offset, flat);
  }
};

} // namespace syncnorm::cuda
