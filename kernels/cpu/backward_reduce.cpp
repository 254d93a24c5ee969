#include "kernels/backend.hpp"
#include "kernels/cpu/targets.hpp"
#include "kernels/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/backward_reduce.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/backward_input-inl.hpp"
#include "kernels/cpu/beside-inl.hpp"
#include "kernels/cpu/reduce-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace syncnorm::cpu::HWY_NAMESPACE {

namespace {

/// Sums of dy and dy * (x - mean), dy masked first if `Masked`; the pivot is
/// the mean.
template <class T, bool Masked, class Cpu>
struct gradient_reduction {
  using real = compute_t<T>;

  struct cursor {
    const T* dy;
    const T* x;
    std::int64_t bit;

    cursor operator+(std::int64_t i) const {
      return {dy + i, x + i, bit + i};
    }
  };

  struct nothing {};

  static constexpr bool finds_pivots = false;

  static constexpr std::int64_t element_bytes = 2 * sizeof(T);

  static constexpr fetching planes = Cpu::gradient_planes;
  static constexpr fetching rows = Cpu::gradient_rows;
  static constexpr fetching tiles = Cpu::gradient_tiles;

  walk w;
  const T* dy;
  strides dy_step;
  const T* x;
  strides x_step;
  const std::uint8_t* mask;
  const real* mean;

  [[nodiscard]] cursor plane(std::int64_t g, std::int64_t c) const {
    return {dy + g * dy_step.group + c * dy_step.inner,
            x + g * x_step.group + c * x_step.inner,
            (g * w.channels + c) * w.inner};
  }

  [[nodiscard]] cursor row(std::int64_t g, std::int64_t r) const {
    return {dy + g * dy_step.group + r * dy_step.inner,
            x + g * x_step.group + r * x_step.inner,
            (g * w.inner + r) * w.channels};
  }

  template <bool Full>
  HWY_INLINE void add(tag<real> d, const cursor& at, std::int64_t i,
                      std::size_t n, vec<real> pivot, vec<real>& s,
                      vec<real>& q) const {
    auto gradient = Full ? load(d, at.dy + i) : load_first(d, at.dy + i, n);
    auto value = Full ? load(d, at.x + i) : load_first(d, at.x + i, n);
    if constexpr (Masked)
      gradient =
          hn::IfThenElseZero(load_bits(d, mask, at.bit + i, n), gradient);
    add_gradient(gradient, value, pivot, s, q);
  }

  template <fetch_into Where>
  HWY_INLINE void fetch(const cursor& at, std::int64_t i,
                        std::int64_t n) const {
    prefetch<Where>(at.dy + i, n);
    prefetch<Where>(at.x + i, n);
  }

  [[nodiscard]] real pivot(const slab_memory&, std::int64_t c, std::int64_t,
                           const cursor&) const {
    return mean[c];
  }

  static nothing block(std::int64_t, std::int64_t) {
    return {};
  }

  static void flush(const channel_results& results, nothing, std::int64_t c,
                    real, double s, double q) {
    results.first[c] += s;
    results.second[c] += q;
  }
};

/// Adds all slabs to the first, in their order.
void add_slabs(const slab_layout& layout, void* workspace, std::int64_t slabs,
               std::int64_t channels) {
  auto total = layout.slab(workspace, 0);
  for (std::int64_t i = 1; i < slabs; ++i) {
    auto one = layout.slab(workspace, i);
    for (std::int64_t c = 0; c < channels; ++c) {
      total.first[c] += one.first[c];
      total.second[c] += one.second[c];
    }
  }
}

/// Sets `out`, unless it is null, to value(c) for each channel c.
template <class Real, class Value>
void write(void* out, std::int64_t channels, const Value& value) {
  if (out == nullptr)
    return;
  for (std::int64_t c = 0; c < channels; ++c)
    static_cast<Real*>(out)[c] = Real(value(c));
}

/// @param sums, products  null: zeros.
template <class Real>
void write_sums(const double* sums, const double* products,
                std::int64_t channels, const void* inv_std,
                const backward_sums& out) {
  auto sum_dy = [sums](std::int64_t c) {
    return sums == nullptr ? 0.0 : sums[c];
  };
  auto sum_dy_xmu = [products](std::int64_t c) {
    return products == nullptr ? 0.0 : products[c];
  };
  auto weight_grad = [&](std::int64_t c) {
    return products == nullptr
               ? 0.0
               : products[c] * double(static_cast<const Real*>(inv_std)[c]);
  };
  write<Real>(out.sum_dy, channels, sum_dy);
  write<Real>(out.sum_dy_xmu, channels, sum_dy_xmu);
  write<Real>(out.bias_grad, channels, sum_dy);
  write<Real>(out.weight_grad, channels, weight_grad);
}

template <class T>
void sums_of(const execution& run, const const_tensor_view& dy,
             const const_tensor_view& x, const channel_parameters& parameters,
             const std::uint8_t* mask, const backward_sums& out,
             const workspace& scratch, const backward_input_call* beside) {
  using real = compute_t<T>;
  auto w = walk_of(x.layout(), gapless(x.layout()) && gapless(dy.layout()));
  auto plan = plan_of(w);
  slab_layout layout{x.layout()};
  auto calculate_as = [&]<bool Masked, class Cpu>() {
    gradient_reduction<T, Masked, Cpu> reduction{
        w,
        static_cast<const T*>(dy.data()),
        strides_of(w, dy.layout()),
        static_cast<const T*>(x.data()),
        strides_of(w, x.layout()),
        mask,
        static_cast<const real*>(parameters.mean)};
    if (beside == nullptr)
      return reduce(run, reduction, w, plan, layout, scratch.data);
    training<T, true> operation{gradients_of<T, true>(*beside),
                                beside->parameters, beside->sums};
    reduce_beside(reduction, operation, w, plan, layout, scratch.data);
  };
  auto calculate = [&]<bool Masked>() {
    with_fetching<T>([&]<class Cpu>(Cpu) {
      calculate_as.template operator()<Masked, Cpu>();
    });
  };
  if (x.empty())
    return write_sums<real>(nullptr, nullptr, w.channels, parameters.inv_std,
                            out);
  if (mask != nullptr)
    calculate.template operator()<true>();
  else
    calculate.template operator()<false>();
  add_slabs(layout, scratch.data, plan.slabs, w.channels);
  auto results = layout.slab(scratch.data, 0);
  write_sums<real>(results.first, results.second, w.channels,
                   parameters.inv_std, out);
}

void backward_reduce(const execution& run, const const_tensor_view& dy,
                     const const_tensor_view& x,
                     const channel_parameters& parameters,
                     const std::uint8_t* mask, const backward_sums& out,
                     const workspace& scratch,
                     const backward_input_call* beside) {
  with_element(x.type(), [&]<class T>(element<T>) {
    sums_of<T>(run, dy, x, parameters, mask, out, scratch, beside);
  });
}

} // namespace

} // namespace syncnorm::cpu::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace syncnorm::cpu {

HWY_EXPORT(backward_reduce);

std::size_t backward_reduce_workspace(const tensor_layout& x) {
  return slab_layout{x}.bytes();
}

void backward_reduce(const execution& run, const const_tensor_view& dy,
                     const const_tensor_view& x,
                     const channel_parameters& parameters,
                     const std::uint8_t* mask, const backward_sums& out,
                     const workspace& scratch,
                     const backward_input_call* beside) {
  HWY_DYNAMIC_DISPATCH(backward_reduce)
  (run, dy, x, parameters, mask, out, scratch, beside);
}

} // namespace syncnorm::cpu

#endif
