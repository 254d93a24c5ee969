#include "kernels/backend.hpp"
#include "kernels/cpu/bit_writer.hpp"
#include "kernels/cpu/targets.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/math.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/normalize.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/elementwise-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace syncnorm::cpu::HWY_NAMESPACE {

namespace {

template <class T>
struct normalize_operation {
  using element = T;
  using real = compute_t<T>;

  static constexpr int constants = 3;

  struct cursor {
    const T* x;
    T* y;
    const T* residual;
    std::int64_t bit;

    cursor operator+(std::int64_t i) const {
      return {x + i, y + i, residual == nullptr ? nullptr : residual + i,
              bit + i};
    }
  };

  walk w;
  const T* x;
  strides x_step;
  T* y;
  strides y_step;
  channel_normalizer channel;
  fused_tail tail;
  std::int64_t upcoming;

  [[nodiscard]] cursor line(std::int64_t g, std::int64_t j) const {
    auto in = g * x_step.group + j * x_step.inner;
    auto out = g * y_step.group + j * y_step.inner;
    const auto* residual = static_cast<const T*>(tail.residual);
    auto bit = w.rows ? (g * w.inner + j) * w.channels
                      : (g * w.channels + j) * w.inner;
    return {x + in, y + out, residual == nullptr ? nullptr : residual + out,
            bit};
  }

  static const T* output(const cursor& at) {
    return at.y;
  }

  template <fetch_into Inputs, fetch_into Output>
  HWY_INLINE void fetch(const cursor& at, std::int64_t i,
                        std::int64_t n) const {
    prefetch<Inputs>(at.x + i, n);
    prefetch<Output>(at.y + i, n);
  }

  void constants_of(std::int64_t c, real (&k)[constants]) const {
    auto read = [c](const void* p, real absent) {
      return p == nullptr ? absent : static_cast<const real*>(p)[c];
    };
    auto spread = read(channel.spread, 0);
    auto inv_std = channel.is_variance ? real(math::inverse_deviation(
                       double(spread), channel.eps, channel.mode))
                                       : spread;
    k[0] = read(channel.mean, 0);
    k[1] = inv_std * read(channel.weight, 1);
    k[2] = read(channel.bias, 0);
  }
};

/// Without a tail.
template <class T>
struct plain : normalize_operation<T> {
  using base = normalize_operation<T>;
  using typename base::cursor;
  using typename base::real;

  static constexpr int inputs = 1;

  struct run {
    run(const plain&, const cursor&) {}
    void finish() {}
  };

  template <access Access>
  HWY_INLINE void apply(tag<real> d, const cursor& at, std::int64_t i,
                        std::size_t n, const vec<real> (&k)[base::constants],
                        run&) const {
    auto v = normalized(load_as<Access>(d, at.x + i, n), k[0], k[1], k[2]);
    store_as<Access>(d, v, at.y + i, n);
  }
};

/// With residual or ReLU, and the mask of ReLU.
template <class T>
struct fused : normalize_operation<T> {
  using base = normalize_operation<T>;
  using typename base::cursor;
  using typename base::real;

  static constexpr int inputs = 2;

  struct run {
    run(const fused& operation, const cursor& at)
        : bits{operation.tail.mask, at.bit} {}

    void finish() {
      bits.finish();
    }

    bit_writer bits;
  };

  template <access Access>
  HWY_INLINE void apply(tag<real> d, const cursor& at, std::int64_t i,
                        std::size_t n, const vec<real> (&k)[base::constants],
                        run& line) const {
    auto v = normalized(load_as<Access>(d, at.x + i, n), k[0], k[1], k[2]);
    if (at.residual != nullptr)
      v = hn::Add(v, load_as<Access>(d, at.residual + i, n));
    if (this->tail.relu) {
      if (this->tail.mask != nullptr) {
        auto positive = bits_of(d, hn::Gt(v, hn::Zero(d)));
        if constexpr (Access == access::some)
          positive &= (std::uint64_t{1} << n) - 1;
        line.bits.append(positive, unsigned(n));
      }
      // NaN is not below zero and stays.
      v = hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), v);
    }
    store_as<Access>(d, v, at.y + i, n);
  }
};

template <class T>
void normalize_of(const execution& run, const const_tensor_view& x,
                  const channel_normalizer& channel, const tensor_view& y,
                  const fused_tail& tail, std::int64_t upcoming) {
  auto w = walk_of(x.layout(), gapless(x.layout()) && gapless(y.layout()));
  normalize_operation<T> operation{w,
                                   static_cast<const T*>(x.data()),
                                   strides_of(w, x.layout()),
                                   static_cast<T*>(y.data()),
                                   strides_of(w, y.layout()),
                                   channel,
                                   tail,
                                   upcoming};
  auto streamed = is_streamed(y, x.data());
  auto grain = tail.mask == nullptr ? std::int64_t{1}
                                    : mask_grain(w.rows ? w.channels : w.inner);
  if (tail.residual != nullptr || tail.relu)
    do_elements(run, fused<T>{operation}, w, streamed, grain);
  else
    do_elements(run, plain<T>{operation}, w, streamed, grain);
}

void normalize(const execution& run, const const_tensor_view& x,
               const channel_normalizer& channel, const tensor_view& y,
               const fused_tail& tail, std::int64_t upcoming) {
  with_element(x.type(), [&]<class T>(element<T>) {
    normalize_of<T>(run, x, channel, y, tail, upcoming);
  });
}

} // namespace

} // namespace syncnorm::cpu::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace syncnorm::cpu {

HWY_EXPORT(normalize);

void normalize(const execution& run, const const_tensor_view& x,
               const channel_normalizer& channel, const tensor_view& y,
               const fused_tail& tail, std::int64_t upcoming) {
  HWY_DYNAMIC_DISPATCH(normalize)(run, x, channel, y, tail, upcoming);
}

} // namespace syncnorm::cpu

#endif
