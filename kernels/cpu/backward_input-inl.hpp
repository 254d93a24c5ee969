// dx of one element, as an operation of elementwise-inl.hpp.

#if defined(SYNCNORM_CPU_BACKWARD_INPUT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SYNCNORM_CPU_BACKWARD_INPUT_INL_HPP
#undef SYNCNORM_CPU_BACKWARD_INPUT_INL_HPP
#else
#define SYNCNORM_CPU_BACKWARD_INPUT_INL_HPP
#endif

#include "kernels/backend.hpp"
#include "kernels/cpu/elementwise-inl.hpp"
#include "kernels/math.hpp"

HWY_BEFORE_NAMESPACE();

namespace syncnorm::cpu::HWY_NAMESPACE {

/// The tensors of both operations. In evaluation x is not read: it is dy.
/// @tparam Fused  there may be a mask, or a residual's gradient.
template <class T, bool Fused>
struct gradients {
  struct cursor {
    const T* dy;
    const T* x;
    T* dx;
    T* residual_grad;
    std::int64_t bit;

    cursor operator+(std::int64_t i) const {
      return {dy + i, x + i, dx + i,
              residual_grad == nullptr ? nullptr : residual_grad + i, bit + i};
    }
  };

  static constexpr std::int64_t upcoming = 0;

  walk w;
  const T* dy;
  strides dy_step;
  const T* x;
  strides x_step;
  T* dx;
  strides dx_step;
  T* residual_grad;
  const std::uint8_t* mask;

  [[nodiscard]] cursor line(std::int64_t g, std::int64_t j) const {
    auto out = g * dx_step.group + j * dx_step.inner;
    auto bit = w.rows ? (g * w.inner + j) * w.channels
                      : (g * w.channels + j) * w.inner;
    return {dy + g * dy_step.group + j * dy_step.inner,
            x + g * x_step.group + j * x_step.inner, dx + out,
            residual_grad == nullptr ? nullptr : residual_grad + out, bit};
  }

  static const T* output(const cursor& at) {
    return at.dx;
  }

  template <fetch_into Inputs, fetch_into Output>
  HWY_INLINE void fetch(const cursor& at, std::int64_t i,
                        std::int64_t n) const {
    prefetch<Inputs>(at.dy + i, n);
    prefetch<Inputs>(at.x + i, n);
    prefetch<Output>(at.dx + i, n);
  }

  /// Nothing lasts for a line.
  struct run {
    run(const gradients&, const cursor&) {}
    void finish() {}
  };

  /// dy, masked; written as the residual's gradient where that is wanted.
  template <access Access, class D>
  HWY_INLINE hn::Vec<D> masked(D d, const cursor& at, std::int64_t i,
                               std::size_t n) const {
    auto v = load_as<Access>(d, at.dy + i, n);
    if constexpr (Fused) {
      if (mask != nullptr)
        v = hn::IfThenElseZero(load_bits(d, mask, at.bit + i, n), v);
      if (at.residual_grad != nullptr) {
        constexpr auto plain =
            Access == access::some ? access::some : access::whole;
        store_as<plain>(d, v, at.residual_grad + i, n);
      }
    }
    return v;
  }
};

template <class T, bool Fused>
struct training : gradients<T, Fused> {
  using element = T;
  using real = compute_t<T>;
  using typename gradients<T, Fused>::cursor;
  using typename gradients<T, Fused>::run;

  static constexpr int inputs = 2;
  static constexpr int constants = 4;

  channel_parameters parameters;
  total_sums sums;

  void constants_of(std::int64_t c, real (&k)[constants]) const {
    auto read = [c](const void* p) {
      return double(static_cast<const real*>(p)[c]);
    };
    auto weight = parameters.weight == nullptr ? 1 : read(parameters.weight);
    auto all = math::backward_constants_of<real>(
        read(parameters.mean), read(parameters.inv_std), weight,
        read(sums.sum_dy), read(sums.sum_dy_xmu), sums.count);
    k[0] = all.mean;
    k[1] = all.mean_dy;
    k[2] = all.projection;
    k[3] = all.scale;
  }

  template <access Access>
  HWY_INLINE void apply(tag<real> d, const cursor& at, std::int64_t i,
                        std::size_t n, const vec<real> (&k)[constants],
                        run&) const {
    auto value = load_as<Access>(d, at.x + i, n);
    auto gradient = this->template masked<Access>(d, at, i, n);
    auto v = input_gradient(gradient, value, k[0], k[1], k[2], k[3]);
    store_as<Access>(d, v, at.dx + i, n);
  }
};

template <class T, bool Fused>
struct evaluation : gradients<T, Fused> {
  using element = T;
  using real = compute_t<T>;
  using typename gradients<T, Fused>::cursor;
  using typename gradients<T, Fused>::run;

  static constexpr int inputs = 1;
  static constexpr int constants = 1;

  channel_normalizer channel;

  void constants_of(std::int64_t c, real (&k)[constants]) const {
    auto var = static_cast<const real*>(channel.spread)[c];
    auto weight = channel.weight == nullptr
                      ? real(1)
                      : static_cast<const real*>(channel.weight)[c];
    k[0] = real(math::inverse_deviation(double(var), channel.eps, channel.mode))
           * weight;
  }

  template <access Access>
  HWY_INLINE void apply(tag<real> d, const cursor& at, std::int64_t i,
                        std::size_t n, const vec<real> (&k)[constants],
                        run&) const {
    auto gradient = this->template masked<Access>(d, at, i, n);
    store_as<Access>(d, hn::Mul(gradient, k[0]), at.dx + i, n);
  }
};

/// @param call  its parameters and sums are not read.
template <class T, bool Fused>
gradients<T, Fused> gradients_of(const backward_input_call& call) {
  const auto& [dy, x, parameters, sums, mask, dx, residual_grad] = call;
  auto w = walk_of(dy.layout(), gapless(dy.layout()) && gapless(x.layout())
                                    && gapless(dx.layout()));
  return {w,
          static_cast<const T*>(dy.data()),
          strides_of(w, dy.layout()),
          static_cast<const T*>(x.data()),
          strides_of(w, x.layout()),
          static_cast<T*>(dx.data()),
          strides_of(w, dx.layout()),
          static_cast<T*>(residual_grad),
          mask};
}

} // namespace syncnorm::cpu::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
