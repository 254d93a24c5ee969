// Elements in memory and vectors of the type that is calculated in, for one
// instruction set. Included once for each of them by Highway's
// foreach_target.h, hence the guard that toggles.

#if defined(SYNCNORM_CPU_SIMD_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SYNCNORM_CPU_SIMD_INL_HPP
#undef SYNCNORM_CPU_SIMD_INL_HPP
#else
#define SYNCNORM_CPU_SIMD_INL_HPP
#endif

#include "kernels/cpu/cpu_kind.hpp"
#include "kernels/cpu/fetching.hpp"
#include "kernels/half.hpp"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();

namespace syncnorm::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

static_assert(std::endian::native == std::endian::little,
              "the bit masks are read in words");

/// The type that elements of type T are calculated in.
template <class T>
struct compute {
  using type = float;
};

template <>
struct compute<double> {
  using type = double;
};

template <class T>
using compute_t = typename compute<T>::type;

template <class Real>
using tag = hn::ScalableTag<Real>;

template <class Real>
using vec = hn::Vec<tag<Real>>;

template <class V>
HWY_INLINE V multiply_add(V a, V b, V c) {
  return hn::MulAdd(a, b, c);
}

// Highway's conversions of 16-bit floats are used where they are CPU
// instructions. The others truncate instead of rounding and know no infinity.
#undef SYNCNORM_NATIVE_FLOAT16
#if HWY_ARCH_X86 && HWY_TARGET < HWY_SSE4
#define SYNCNORM_NATIVE_FLOAT16 1
#else
#define SYNCNORM_NATIVE_FLOAT16 0
#endif

template <class D>
using half_bits = hn::Vec<hn::Rebind<std::uint16_t, D>>;

/// half.hpp's `to_float(float16)`.
template <class D>
HWY_INLINE hn::Vec<D> promote(D d, half_bits<D> bits, float16) {
#if SYNCNORM_NATIVE_FLOAT16
  hn::Rebind<hwy::float16_t, D> half;
  return hn::PromoteTo(d, hn::BitCast(half, bits));
#else
  hn::RebindToUnsigned<D> du;
  hn::RebindToSigned<D> di;
  auto wide = hn::PromoteTo(du, bits);
  auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7fff)));
  auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000)));
  // Exact also for subnormals: a product with a power of two.
  auto finite =
      hn::BitCast(du, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
  auto special = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x0f7fffff));
  auto infinite = hn::Or(magnitude, hn::Set(du, 0x7f800000));
  auto value = hn::IfThenElse(hn::RebindMask(du, special), infinite, finite);
  return hn::BitCast(d, hn::Or(value, sign));
#endif
}

/// half.hpp's `to_float(bfloat16)`.
template <class D>
HWY_INLINE hn::Vec<D> promote(D d, half_bits<D> bits, bfloat16) {
  hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

/// The lower 16 bits of each lane.
template <class D, class VU>
HWY_INLINE half_bits<D> narrow(D, VU wide) {
  hn::Rebind<std::uint16_t, D> d16;
  hn::RebindToSigned<D> di;
  return hn::DemoteTo(d16, hn::BitCast(di, wide));
}

/// half.hpp's `to_float16`.
template <class D>
HWY_INLINE half_bits<D> demote(D d, hn::Vec<D> value, float16) {
#if SYNCNORM_NATIVE_FLOAT16
  hn::Rebind<hwy::float16_t, D> half;
  hn::Rebind<std::uint16_t, D> d16;
  return hn::BitCast(d16, hn::DemoteTo(half, value));
#else
  hn::RebindToUnsigned<D> du;
  hn::RebindToSigned<D> di;
  auto bits = hn::BitCast(du, value);
  auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000));
  auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffff));
  auto above = [&](std::int32_t limit) HWY_ATTR {
    return hn::RebindMask(
        du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, limit)));
  };
  auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
  auto normal = hn::ShiftRight<13>(
      hn::Sub(hn::Add(hn::Add(magnitude, hn::Set(du, 0xfff)), odd),
              hn::Set(du, 0x38000000)));
  auto aligned = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
  auto subnormal = hn::Sub(hn::BitCast(du, aligned), hn::Set(du, 0x3f000000));
  auto nan = hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ff)),
                    hn::Set(du, 0x7e00));
  auto result = hn::IfThenElse(above(0x387fffff), normal, subnormal);
  result = hn::IfThenElse(above(0x477fffff), hn::Set(du, 0x7c00), result);
  result = hn::IfThenElse(above(0x7f800000), nan, result);
  return narrow(d, hn::Or(result, sign));
#endif
}

/// half.hpp's `to_bfloat16`.
template <class D>
HWY_INLINE half_bits<D> demote(D d, hn::Vec<D> value, bfloat16) {
  hn::RebindToUnsigned<D> du;
  auto bits = hn::BitCast(du, value);
  auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  auto rounded =
      hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd));
  auto nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
  // Highway 1.0's Ne is false for NaN with AVX2 and AVX-512.
  auto is_nan = hn::RebindMask(du, hn::Not(hn::Eq(value, value)));
  return narrow(d, hn::IfThenElse(is_nan, nan, rounded));
}

HWY_INLINE vec<float> load(tag<float> d, const float* p) {
  return hn::LoadU(d, p);
}

HWY_INLINE vec<double> load(tag<double> d, const double* p) {
  return hn::LoadU(d, p);
}

template <class Half>
HWY_INLINE vec<float> load(tag<float> d, const Half* p) {
  hn::Rebind<std::uint16_t, tag<float>> d16;
  return promote(d, hn::LoadU(d16, &p->bits), Half{});
}

HWY_INLINE void store(tag<float> d, vec<float> v, float* p) {
  hn::StoreU(v, d, p);
}

HWY_INLINE void store(tag<double> d, vec<double> v, double* p) {
  hn::StoreU(v, d, p);
}

template <class Half>
HWY_INLINE void store(tag<float> d, vec<float> v, Half* p) {
  hn::Rebind<std::uint16_t, tag<float>> d16;
  hn::StoreU(demote(d, v, Half{}), d16, &p->bits);
}

/// Stores past the caches; p is aligned to what one vector fills.
template <class D, class T>
HWY_INLINE void stream(D d, hn::Vec<D> v, T* p) {
  if constexpr (sizeof(T) == sizeof(hn::TFromD<D>)) {
    hn::Stream(v, d, p);
  } else if constexpr (hn::MaxLanes(d) >= 8) {
    hn::Rebind<std::uint16_t, D> d16;
    hn::Stream(demote(d, v, T{}), d16, &p->bits);
  } else {
    // Highway streams no less than 16 bytes.
    store(d, v, p);
  }
}

// Only where the CPU has masked accesses for lanes of this size do Highway's
// touch no lane outside the mask.
template <class T>
inline constexpr bool native_masks =
    HWY_ARCH_X86
    && (HWY_TARGET <= HWY_AVX3 || (HWY_TARGET <= HWY_AVX2 && sizeof(T) >= 4));

/// Loads n elements, 0 < n < lanes; the other lanes are 0.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_first(D d, const T* p, std::size_t n) {
  if constexpr (native_masks<T> && sizeof(T) == sizeof(hn::TFromD<D>)) {
    return hn::MaskedLoad(hn::FirstN(d, n), d, p);
  } else if constexpr (native_masks<T>) {
    hn::Rebind<std::uint16_t, D> d16;
    return promote(d, hn::MaskedLoad(hn::FirstN(d16, n), d16, &p->bits), T{});
  } else {
    T buffer[hn::MaxLanes(d)] = {};
    std::memcpy(buffer, p, n * sizeof(T));
    return load(d, buffer);
  }
}

/// Stores the first n lanes, 0 < n < lanes.
template <class D, class T>
HWY_INLINE void store_first(D d, hn::Vec<D> v, T* p, std::size_t n) {
  if constexpr (native_masks<T> && sizeof(T) == sizeof(hn::TFromD<D>)) {
    hn::BlendedStore(v, hn::FirstN(d, n), d, p);
  } else if constexpr (native_masks<T>) {
    hn::Rebind<std::uint16_t, D> d16;
    hn::BlendedStore(demote(d, v, T{}), hn::FirstN(d16, n), d16, &p->bits);
  } else {
    T buffer[hn::MaxLanes(d)];
    store(d, v, buffer);
    std::memcpy(p, buffer, n * sizeof(T));
  }
}

/// Prefetches the memory of `n` elements at p, which need not exist.
template <fetch_into Where, class T>
HWY_INLINE void prefetch(const T* p, std::int64_t n) {
  if constexpr (Where != fetch_into::nowhere) {
    // For __builtin_prefetch, a higher number is nearer to the CPU.
    constexpr int locality = Where == fetch_into::first_level    ? 3
                             : Where == fetch_into::second_level ? 2
                                                                 : 0;
    constexpr auto line = std::int64_t(64 / sizeof(T));
    for (std::int64_t i = 0; i < n; i += line)
      __builtin_prefetch(p + i, /*write*/ 0, locality);
  }
}

/// Calls `body` with how elements of type T are prefetched on this CPU. It
/// makes a difference with AVX-512 only; float64 is prefetched as on any CPU.
template <class T, class Body>
void with_fetching(const Body& body) {
#if HWY_ARCH_X86
  if constexpr (HWY_TARGET <= HWY_AVX3 && !std::is_same_v<T, double>) {
    if (this_cpu() == cpu_kind::zen4)
      return body(zen4{});
    if (this_cpu() == cpu_kind::zen5)
      return body(zen5{});
  }
#endif
  body(any_cpu{});
}

/// The sum of all lanes.
template <class D>
HWY_INLINE double sum_of(D d, hn::Vec<D> v) {
  return double(hn::GetLane(hn::SumOfLanes(d, v)));
}

/// The bits of a ReLU mask from `position` on, as many as there are lanes.
/// `words` is the mask, padded to whole words, so that a word is read only if
/// a bit of it is asked for.
template <class D>
HWY_INLINE hn::Mask<D> load_bits(D d, const std::uint8_t* words,
                                 std::int64_t position, std::size_t n) {
  auto shift = unsigned(position & 63);
  std::uint64_t bits = 0;
  std::memcpy(&bits, words + position / 64 * 8, 8);
  bits >>= shift;
  if (shift + n > 64) {
    std::uint64_t next = 0;
    std::memcpy(&next, words + position / 64 * 8 + 8, 8);
    bits |= next << (64 - shift);
  }
  std::uint8_t bytes[8];
  std::memcpy(bytes, &bits, 8);
  return hn::LoadMaskBits(d, bytes);
}

template <class D>
HWY_INLINE std::uint64_t bits_of(D d, hn::Mask<D> mask) {
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, mask, bytes);
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes, 8);
  return bits;
}

} // namespace syncnorm::cpu::HWY_NAMESPACE

#define SYNCNORM_ELEMENTS_NAMESPACE syncnorm::cpu::HWY_NAMESPACE
#define SYNCNORM_ELEMENTS_FUNCTION HWY_INLINE
#include "kernels/elements-inl.hpp"
#undef SYNCNORM_ELEMENTS_NAMESPACE
#undef SYNCNORM_ELEMENTS_FUNCTION

HWY_AFTER_NAMESPACE();

#endif
