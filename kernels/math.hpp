#pragma once

// The mathematics of one channel, shared by the CPU and the CUDA kernels: how
// moments are made from shifted sums, merged and finalized, and the
// coefficients of the elementwise passes. The element formulas themselves are
// in elements-inl.hpp.

#include "syncnorm/moments.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

#ifdef __CUDACC__
#define SYNCNORM_HOST_DEVICE __host__ __device__
#else
#define SYNCNORM_HOST_DEVICE
#endif

namespace syncnorm::math {

/// Mean and sum of squared deviations of values whose number is kept
/// separately: it is the same for all channels.
template <class Real>
struct mean_m2 {
  Real mean = 0;
  Real m2 = 0;
};

/// The moments of `count` > 0 values x from sum(x - pivot) and
/// sum((x - pivot)^2).
///
/// Numerics: the subtraction loses digits as count * (mean - pivot)^2 outgrows
/// m2. So the pivot is a mean of values of the channel: of some of these
/// values, or of some that came before; then the loss is bounded by the ratio
/// of the counts (docs/numerics.md).
template <class Real>
SYNCNORM_HOST_DEVICE constexpr mean_m2<Real>
from_shifted_sums(Real pivot, Real sum, Real sum_of_squares, Real count) {
  auto shift = sum / count;
  auto m2 = sum_of_squares - sum * shift;
  return {pivot + shift, m2 < 0 ? Real(0) : m2};
}

/// part / whole, of counts.
///
/// Numerics: on a GPU, where a division has a branch that delays what follows,
/// float32 is multiplied by the reciprocal instead. One step of Newton's method
/// from the device's approximation gives it correctly rounded for every whole
/// whose digits are not all ones (P. Markstein, Computation of elementary
/// functions on the IBM RISC System/6000 processor, 1990). So the share is
/// within 1.5 units in the last place.
template <class Real>
SYNCNORM_HOST_DEVICE constexpr Real share_of(Real part, Real whole) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Real) == sizeof(float)) {
    float near = 0;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(whole));
    return part * __fmaf_rn(near, __fmaf_rn(-whole, near, 1.0f), near);
  }
#endif
  return part / whole;
}

/// What a merge of two sets needs to know about their counts; the same for all
/// channels.
template <class Real>
struct merge_weights {
  /// n_b / (n_a + n_b)
  Real mean = 0;
  /// n_a * n_b / (n_a + n_b)
  Real m2 = 0;
};

/// @param n_a, n_b counts >= 0, not both 0.
template <class Real, class Count>
SYNCNORM_HOST_DEVICE constexpr merge_weights<Real> weights_of_merge(Count n_a,
                                                                    Count n_b) {
  auto share = share_of(Real(n_b), Real(n_a + n_b));
  return {share, Real(n_a) * share};
}

/// Chan's update: the moments of the union of a and b. Neither may be empty.
template <class Real>
SYNCNORM_HOST_DEVICE constexpr mean_m2<Real>
merged(mean_m2<Real> a, mean_m2<Real> b, merge_weights<Real> weights) {
  auto delta = b.mean - a.mean;
  return {a.mean + delta * weights.mean,
          a.m2 + b.m2 + delta * delta * weights.m2};
}

template <class Real>
inline constexpr Real largest = std::numeric_limits<Real>::max();

/// The moments of a and further values x, `count` in all, from
/// shift = sum((x - a.mean) / count) and sum((x - a.mean)^2).
///
/// Numerics: with k new values, at most k / count of the squares is subtracted
/// from them: no more than one bit is lost where a has as many values. Squares
/// that are too large give infinity, not a NaN; subnormal ones give nothing
/// less than 0.
template <class Real>
SYNCNORM_HOST_DEVICE constexpr mean_m2<Real>
extended(mean_m2<Real> a, Real shift, Real squares, Real count) {
  auto finite = squares <= largest<Real>;
  auto m2 = finite ? squares - shift * shift * count : squares;
  return {a.mean + shift, a.m2 + (m2 < 0 ? Real(0) : m2)};
}

/// One node of the tree of `merge_moments`: calculated in float64, rounded to
/// the type that moments travel in. Because each node is rounded, a group
/// that was merged and sent elsewhere gives the same bits as one merged in
/// place. An empty side gives the other one unchanged, whatever it holds.
template <class Stored>
SYNCNORM_HOST_DEVICE constexpr mean_m2<Stored>
merged_node(mean_m2<Stored> a, std::int64_t n_a, mean_m2<Stored> b,
            std::int64_t n_b) {
  if (n_b == 0)
    return a;
  if (n_a == 0)
    return b;
  auto both = merged<double>({a.mean, a.m2}, {b.mean, b.m2},
                             weights_of_merge<double>(n_a, n_b));
  return {Stored(both.mean), Stored(both.m2)};
}

/// Where the tree of `merge_moments` cuts `count` > 1 neighbours in two: the
/// first part is the largest power of two below `count`. Cutting on like this
/// gives the same tree as merging neighbours at distance 1, then 2, then 4.
SYNCNORM_HOST_DEVICE constexpr std::int64_t tree_split(std::int64_t count) {
  std::int64_t first = 1;
  while (first < count - first)
    first *= 2;
  return first;
}

/// 1 / sqrt(var + eps), or 1 / sqrt(max(var, eps)); a NaN stays one.
template <class Real>
SYNCNORM_HOST_DEVICE inline Real inverse_deviation(Real var, Real eps,
                                                   eps_mode mode) {
  using std::sqrt;
  auto guarded = mode == eps_mode::plus ? var + eps : (var < eps ? eps : var);
  return Real(1) / sqrt(guarded);
}

/// (1 - momentum) * running + momentum * batch
SYNCNORM_HOST_DEVICE constexpr double
moving_average(double running, double batch, double momentum) {
  return (1 - momentum) * running + momentum * batch;
}

/// The inverse standard deviation of a variance that `eps_mode::clamp` has
/// clamped, as it is stored.
template <class Real>
[[nodiscard]] inline Real clamped_inv_std(double eps) {
  return Real(1 / std::sqrt(eps));
}

/// What `finalize_moments` makes of one channel.
struct finalized {
  double mean = 0;
  double inv_std = 0;
  double running_mean = 0;
  double running_var = 0;
};

/// @param total  meaningless if `count` is 0.
/// @param running_mean, running_var  the values before.
SYNCNORM_HOST_DEVICE inline finalized finalize(mean_m2<double> total,
                                               std::int64_t count,
                                               const finalize_options& options,
                                               double running_mean,
                                               double running_var) {
  if (count == 0)
    return {0, inverse_deviation(0.0, options.eps, options.mode), running_mean,
            running_var};
  auto var = total.m2 / double(count);
  finalized result;
  result.mean = total.mean;
  result.inv_std = inverse_deviation(var, options.eps, options.mode);
  result.running_mean =
      moving_average(running_mean, total.mean, options.momentum);
  result.running_var =
      count == 1 ? running_var
                 : moving_average(running_var, total.m2 / double(count - 1),
                                  options.momentum);
  return result;
}

/// The constants of y = (x - mean) * scale + bias.
template <class Real>
struct normalize_constants {
  Real mean = 0;
  Real scale = 0;
  Real bias = 0;
};

/// The constants of
/// dx = (dy - mean_dy - (x - mean) * projection) * scale.
template <class Real>
struct backward_constants {
  Real mean = 0;
  Real mean_dy = 0;
  Real projection = 0;
  Real scale = 0;
};

/// mean_dy = sum_dy / count, projection = inv_std^2 * sum_dy_xmu / count,
/// scale = weight * inv_std. An infinite inv_std (variance and eps 0) gives
/// NaN, as in the formula; the square of inv_std is not calculated by itself:
/// in float32 it is too large from an inv_std of 1.8e19 on.
/// @param share  1 / count, so that one division serves all channels.
template <class Real>
SYNCNORM_HOST_DEVICE constexpr backward_constants<Real>
backward_constants_by_share(Real mean, Real inv_std, Real weight, Real sum_dy,
                            Real sum_dy_xmu, Real share) {
  return {mean, sum_dy * share, inv_std * (inv_std * (sum_dy_xmu * share)),
          weight * inv_std};
}

/// The same, calculated in float64 and then rounded.
template <class Real>
SYNCNORM_HOST_DEVICE constexpr backward_constants<Real>
backward_constants_of(double mean, double inv_std, double weight, double sum_dy,
                      double sum_dy_xmu, std::int64_t count) {
  auto wide = backward_constants_by_share(mean, inv_std, weight, sum_dy,
                                          sum_dy_xmu, 1.0 / double(count));
  return {Real(wide.mean), Real(wide.mean_dy), Real(wide.projection),
          Real(wide.scale)};
}

} // namespace syncnorm::math
