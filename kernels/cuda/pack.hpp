#pragma once

// Neighbouring elements that a thread loads or stores at once, and the way
// from the type in memory to the type that is calculated in.

#include "kernels/cuda/unroll.hpp"
#include "kernels/half.hpp"
#include "kernels/math.hpp"

#include <cstdint>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace syncnorm::cuda {

/// `Width` neighbouring elements, aligned as one: 16 bytes, or one element.
template <class T, int Width>
struct alignas(sizeof(T) * Width) pack {
  static_assert(Width == 1 || sizeof(T) * Width == 16);
  T values[Width];
};

/// What elements of type T are calculated in.
template <class T>
struct arithmetic {
  using type = float;
};

template <>
struct arithmetic<double> {
  using type = double;
};

template <class T>
using arithmetic_t = typename arithmetic<T>::type;

template <class Real>
SYNCNORM_HOST_DEVICE inline Real widen(double value) {
  return Real(value);
}

template <class Real>
SYNCNORM_HOST_DEVICE inline Real widen(float value) {
  return Real(value);
}

template <class Real>
SYNCNORM_HOST_DEVICE inline Real widen(float16 value) {
#ifdef __CUDA_ARCH__
  return Real(__half2float(__ushort_as_half(value.bits)));
#else
  return Real(to_float(value));
#endif
}

template <class Real>
SYNCNORM_HOST_DEVICE inline Real widen(bfloat16 value) {
#ifdef __CUDA_ARCH__
  return Real(__uint_as_float(unsigned{value.bits} << 16));
#else
  return Real(to_float(value));
#endif
}

SYNCNORM_HOST_DEVICE inline void narrow(double value, double& result) {
  result = value;
}

SYNCNORM_HOST_DEVICE inline void narrow(float value, float& result) {
  result = value;
}

SYNCNORM_HOST_DEVICE inline void narrow(float value, float16& result) {
#ifdef __CUDA_ARCH__
  result.bits = __half_as_ushort(__float2half_rn(value));
#else
  result = to_float16(value);
#endif
}

SYNCNORM_HOST_DEVICE inline void narrow(float value, bfloat16& result) {
#ifdef __CUDA_ARCH__
  result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
  result = to_bfloat16(value);
#endif
}

/// @param from  aligned to the pack, on the device and in tests alike.
template <int Width, class T>
SYNCNORM_HOST_DEVICE inline pack<T, Width> load_pack(const T* from) {
  return *reinterpret_cast<const pack<T, Width>*>(from);
}

template <int Width, class T>
SYNCNORM_HOST_DEVICE inline void store_pack(T* to,
                                            const pack<T, Width>& values) {
  *reinterpret_cast<pack<T, Width>*>(to) = values;
}

/// Reads the bits from element `first` of a ReLU mask on; first is a multiple
/// of Width, a divisor of 8, so that they are in one byte. Bit k of the result
/// is element first + k.
SYNCNORM_HOST_DEVICE inline unsigned mask_bits(const std::uint8_t* mask,
                                               std::int64_t first) {
  return unsigned{mask[first / 8]} >> unsigned(first % 8);
}

} // namespace syncnorm::cuda
