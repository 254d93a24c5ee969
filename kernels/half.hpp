#pragma once

// The two 16-bit element types and their conversions on the host. CUDA has
// types of its own (`__half`, `__nv_bfloat16`) with the same bits.

#include <bit>
#include <cstdint>

namespace syncnorm {

/// An IEEE 754 binary16 number, as it lies in memory.
struct float16 {
  std::uint16_t bits = 0;
};

/// The upper half of a float32, as it lies in memory.
struct bfloat16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(bfloat16 value) {
  return std::bit_cast<float>(std::uint32_t(value.bits) << 16);
}

/// Rounds to nearest, ties to even; overflow gives infinity, NaN a quiet NaN.
constexpr bfloat16 to_bfloat16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return {std::uint16_t((bits >> 16) | 0x40u)};
  return {std::uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

constexpr float to_float(float16 value) {
  auto sign = std::uint32_t(value.bits & 0x8000u) << 16;
  auto exponent = (value.bits >> 10) & 0x1fu;
  std::uint32_t fraction = value.bits & 0x3ffu;
  if (exponent == 0) {
    // Subnormal: fraction * 2^-24, exact in float32.
    auto magnitude = float(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 0x1f)
    return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13)
                                | (fraction != 0 ? 0x400000u : 0u));
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23)
                              | (fraction << 13));
}

/// Rounds to nearest, ties to even; overflow gives infinity, NaN a quiet NaN.
constexpr float16 to_float16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  auto sign = (bits >> 16) & 0x8000u;
  auto magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return {std::uint16_t(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
  if (magnitude >= 0x47800000u) // 2^16 and more
    return {std::uint16_t(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 1/2 leaves the multiple of 2^-24 in the last bits,
    // rounded as the floating-point unit rounds, to nearest even.
    auto aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return {std::uint16_t(
        sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u))};
  }
  auto rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {std::uint16_t(sign | ((rounded - 0x38000000u) >> 13))};
}

} // namespace syncnorm
