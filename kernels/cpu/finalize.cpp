#include "kernels/backend.hpp"
#include "kernels/cpu/targets.hpp"
#include "kernels/math.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/finalize.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();

namespace syncnorm::cpu::HWY_NAMESPACE {

namespace {

/// What `finalize_moments` reads and writes for some neighbouring channels.
/// Copied from and to the caller's arrays, which may be the same for both, so
/// that the compiler sees a loop over arrays that lie apart, and vectorizes it.
struct finalize_tile {
  static constexpr std::int64_t width = 64;

  double mean[width];
  double m2[width];
  double inv_std[width];
  double running_mean[width];
  double running_var[width];
};

/// @param count, options  known where it is inlined, so that the loop has no
/// branches.
template <bool Tracked>
HWY_INLINE void finalize_channels(finalize_tile& x, std::int64_t channels,
                                  std::int64_t count,
                                  const finalize_options& options) {
  for (std::int64_t c = 0; c < channels; ++c) {
    math::mean_m2<double> total;
    if (count != 0)
      total = {x.mean[c], x.m2[c]};
    auto result =
        math::finalize(total, count, options, Tracked ? x.running_mean[c] : 0,
                       Tracked ? x.running_var[c] : 0);
    x.mean[c] = result.mean;
    x.inv_std[c] = result.inv_std;
    if constexpr (Tracked) {
      x.running_mean[c] = result.running_mean;
      x.running_var[c] = result.running_var;
    }
  }
}

template <bool Tracked, eps_mode Mode>
void finalize_in_mode(finalize_tile& x, std::int64_t channels,
                      std::int64_t count, finalize_options options) {
  options.mode = Mode;
  if (count > 1)
    finalize_channels<Tracked>(x, channels, count, options);
  else if (count == 1)
    finalize_channels<Tracked>(x, channels, 1, options);
  else
    finalize_channels<Tracked>(x, channels, 0, options);
}

template <bool Tracked>
void finalize(finalize_tile& x, std::int64_t channels, std::int64_t count,
              const finalize_options& options) {
  if (options.mode == eps_mode::plus)
    finalize_in_mode<Tracked, eps_mode::plus>(x, channels, count, options);
  else
    finalize_in_mode<Tracked, eps_mode::clamp>(x, channels, count, options);
}

template <class Real>
void read(const void* from, std::int64_t first, std::int64_t channels,
          double* to) {
  std::copy_n(static_cast<const Real*>(from) + first, channels, to);
}

template <class Real>
void write(const double* from, std::int64_t first, std::int64_t channels,
           void* to) {
  std::transform(from, from + channels, static_cast<Real*>(to) + first,
                 [](double value) { return Real(value); });
}

template <class Real>
void finalize_all(const const_moments_view& total,
                  const finalize_options& options, void* mean, void* inv_std,
                  const running_view& running) {
  const auto tracked = running.mean != nullptr;
  finalize_tile x;
  for (std::int64_t first = 0; first < total.channels;
       first += finalize_tile::width) {
    auto channels = std::min(finalize_tile::width, total.channels - first);
    if (total.count != 0) {
      read<Real>(total.mean, first, channels, x.mean);
      read<Real>(total.m2, first, channels, x.m2);
    }
    if (tracked) {
      read<Real>(running.mean, first, channels, x.running_mean);
      read<Real>(running.var, first, channels, x.running_var);
      finalize<true>(x, channels, total.count, options);
      write<Real>(x.running_mean, first, channels, running.mean);
      write<Real>(x.running_var, first, channels, running.var);
    } else {
      finalize<false>(x, channels, total.count, options);
    }
    write<Real>(x.mean, first, channels, mean);
    write<Real>(x.inv_std, first, channels, inv_std);
  }
}

void finalize_moments(const execution&, const const_moments_view& total,
                      const finalize_options& options, void* mean,
                      void* inv_std, const running_view& running) {
  if (total.type == dtype::float64)
    finalize_all<double>(total, options, mean, inv_std, running);
  else
    finalize_all<float>(total, options, mean, inv_std, running);
}

} // namespace

} // namespace syncnorm::cpu::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace syncnorm::cpu {

HWY_EXPORT(finalize_moments);

void finalize_moments(const execution& run, const const_moments_view& total,
                      const finalize_options& options, void* mean,
                      void* inv_std, const running_view& running) {
  HWY_DYNAMIC_DISPATCH(finalize_moments)
  (run, total, options, mean, inv_std, running);
}

} // namespace syncnorm::cpu

#endif
