#pragma once

// What the two reductions calculate: from the elements that a thread has
// loaded to the result of a channel. How threads and blocks share the
// elements is not known here (plane_reduce.hpp, row_reduce.hpp).
//
// A reduction has
//   width            elements of one load
//   state            partial result of a set of elements of one channel
//   constants        what must be known of the channel beforehand
//   closing          what must be known of the channel in the end, and can be
//                    loaded before
//   tensors          how many tensors the reduction reads
//   fetched          one load: `width` neighbouring elements
//   values<K>        K elements of one channel, ready for calculation
// and the functions below, which are the same for each.

#include "kernels/cuda/gapped.hpp"
#include "kernels/cuda/pack.hpp"
#include "kernels/cuda/partition.hpp"
#include "kernels/elements.hpp"
#include "kernels/math.hpp"

#include <cstdint>

namespace syncnorm::cuda {

/// Mean and M2 of x.
///
/// The values are taken relative to the channel's first element, so that the
/// mean of values far from zero is rounded once, at the end, and not at each
/// merge. A thread sums its first group of values about the first value, each
/// further group about the mean of the values before; threads are merged by
/// Chan's update.
template <class T, class Real, int Width>
struct moments_of {
  static constexpr int width = Width;
  static constexpr int tensors = 1;

  using real = Real;
  using state = math::mean_m2<Real>;

  struct constants {
    Real base = 0;
  };

  using closing = constants;

  struct fetched {
    pack<T, Width> x;
  };

  template <int K>
  struct values {
    Real x[K];
  };

  sample_index samples;
  gapped<const T> x;
  Real* mean = nullptr;
  Real* m2 = nullptr;
  /// From a channel's first element to the next channel's.
  std::int64_t channel_stride = 1;

  SYNCNORM_HOST_DEVICE constants open(std::int64_t channel) const {
    return {widen<Real>(x.data[channel * channel_stride])};
  }

  SYNCNORM_HOST_DEVICE closing before_close(std::int64_t channel) const {
    return open(channel);
  }

  /// @tparam Dense  `samples.dense`, where that is known.
  template <bool Dense>
  SYNCNORM_HOST_DEVICE fetched fetch(std::int64_t flat) const {
    return {load_pack<Width>(x.template at<Dense>(samples, flat))};
  }

  template <int K>
  SYNCNORM_HOST_DEVICE static void put(values<K>& out, int slot,
                                       const fetched& in, int lane,
                                       const constants& channel) {
    out.x[slot] = widen<Real>(in.x.values[lane]) - channel.base;
  }

  /// @param count  elements in `total`: 0, or K or more.
  template <int K>
  SYNCNORM_HOST_DEVICE static void add(state& total, int count,
                                       const values<K>& in, const constants&) {
    if (count == 0)
      total.mean = in.x[0];
    auto n = Real(count + K);
    auto share = math::share_of(Real(1), n);
    // The sum of the deviations could overflow where their mean does not.
    Real shift = 0;
    Real squares = 0;
    SYNCNORM_UNROLL
    for (int k = 0; k < K; ++k) {
      auto deviation = in.x[k] - total.mean;
      shift = elements::multiply_add(deviation, share, shift);
      squares = elements::multiply_add(deviation, deviation, squares);
    }
    total = math::extended(total, shift, squares, n);
  }

  SYNCNORM_HOST_DEVICE static state
  merge(const state& a, const state& b,
        const math::merge_weights<Real>& weights) {
    return math::merged(a, b, weights);
  }

  SYNCNORM_HOST_DEVICE void close(std::int64_t channel, const closing& known,
                                  const state& total) const {
    mean[channel] = known.base + total.mean;
    m2[channel] = total.m2;
  }
};

/// sum(dy) and sum(dy * (x - mean)), dy masked, and from them the gradients of
/// weight and bias.
template <class T, int Width>
struct gradients_of {
  static constexpr int width = Width;
  static constexpr int tensors = 2;

  using real = arithmetic_t<T>;

  struct state {
    real sum_dy = 0;
    real sum_dy_xmu = 0;
  };

  struct constants {
    real mean = 0;
  };

  struct closing {
    real inv_std = 0;
  };

  struct fetched {
    pack<T, Width> dy;
    pack<T, Width> x;
    unsigned bits;
  };

  template <int K>
  struct values {
    real dy[K];
    real x[K];
  };

  sample_index samples;
  gapped<const T> dy;
  gapped<const T> x;
  const std::uint8_t* mask = nullptr;
  const real* mean = nullptr;
  const real* inv_std = nullptr;
  real* sum_dy = nullptr;
  real* sum_dy_xmu = nullptr;
  real* weight_grad = nullptr;
  real* bias_grad = nullptr;

  SYNCNORM_HOST_DEVICE constants open(std::int64_t channel) const {
    return {mean[channel]};
  }

  SYNCNORM_HOST_DEVICE closing before_close(std::int64_t channel) const {
    return {weight_grad == nullptr ? real(0) : inv_std[channel]};
  }

  template <bool Dense>
  SYNCNORM_HOST_DEVICE fetched fetch(std::int64_t flat) const {
    return {load_pack<Width>(dy.template at<Dense>(samples, flat)),
            load_pack<Width>(x.template at<Dense>(samples, flat)),
            mask == nullptr ? ~0u : mask_bits(mask, flat)};
  }

  template <int K>
  SYNCNORM_HOST_DEVICE static void
  put(values<K>& out, int slot, const fetched& in, int lane, const constants&) {
    auto kept = (in.bits >> lane & 1u) != 0;
    out.dy[slot] = kept ? widen<real>(in.dy.values[lane]) : real(0);
    out.x[slot] = widen<real>(in.x.values[lane]);
  }

  template <int K>
  SYNCNORM_HOST_DEVICE static void add(state& total, int, const values<K>& in,
                                       const constants& channel) {
    state group;
    SYNCNORM_UNROLL
    for (int k = 0; k < K; ++k)
      elements::add_gradient(in.dy[k], in.x[k], channel.mean, group.sum_dy,
                             group.sum_dy_xmu);
    total.sum_dy += group.sum_dy;
    total.sum_dy_xmu += group.sum_dy_xmu;
  }

  SYNCNORM_HOST_DEVICE static state merge(const state& a, const state& b,
                                          const math::merge_weights<real>&) {
    return {a.sum_dy + b.sum_dy, a.sum_dy_xmu + b.sum_dy_xmu};
  }

  SYNCNORM_HOST_DEVICE void close(std::int64_t channel, const closing& known,
                                  const state& total) const {
    sum_dy[channel] = total.sum_dy;
    sum_dy_xmu[channel] = total.sum_dy_xmu;
    if (weight_grad != nullptr)
      weight_grad[channel] = total.sum_dy_xmu * known.inv_std;
    if (bias_grad != nullptr)
      bias_grad[channel] = total.sum_dy;
  }
};

} // namespace syncnorm::cuda
