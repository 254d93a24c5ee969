#pragma once

#include "kernels/math.hpp"

#include <cstdint>

namespace syncnorm::cuda {

__extension__ typedef unsigned __int128 uint128;

/// Divides by a number that only the host knows, without a division: one
/// multiplication by the reciprocal in fixed point. A kernel that finds out
/// the channel of an element does it once for every 16 bytes.
///
/// With l = ceil(log2 d) and m = ceil(2^(63 + l) / d), which is below 2^64,
/// n / d = n * m / 2^(63 + l) rounded down, for every n below 2^63.
/// Source: Granlund and Montgomery, "Division by Invariant Integers using
/// Multiplication", 1994, theorem 4.2.
class divisor {
public:
  divisor() = default;

  /// @param value 1 or more.
  explicit constexpr divisor(std::int64_t value)
      : value_{value},
        shift_{0},
        multiplier_{0} {
    while (shift_ < 63 && (std::int64_t{1} << shift_) < value)
      ++shift_;
    auto numerator = uint128{1} << (63 + shift_);
    auto rounded_up = numerator + (uint128(value) - 1);
    multiplier_ = std::uint64_t(rounded_up / uint128(value));
  }

  [[nodiscard]] SYNCNORM_HOST_DEVICE constexpr std::int64_t value() const {
    return value_;
  }

  /// Returns `dividend / value()`. @param dividend 0 or more.
  [[nodiscard]] SYNCNORM_HOST_DEVICE constexpr std::int64_t
  quotient(std::int64_t dividend) const {
    // Twice the dividend, so that the upper half of the product is shifted by
    // l and not by l - 1, which is -1 for a divisor of 1.
    auto product = uint128(std::uint64_t(dividend) * 2) * multiplier_;
    return std::int64_t(std::uint64_t(product >> 64) >> shift_);
  }

  /// Returns `dividend % value()`. @param dividend 0 or more.
  [[nodiscard]] SYNCNORM_HOST_DEVICE constexpr std::int64_t
  remainder(std::int64_t dividend) const {
    return dividend - quotient(dividend) * value_;
  }

private:
  std::int64_t value_ = 1;
  int shift_ = 0;
  std::uint64_t multiplier_ = std::uint64_t{1} << 63;
};

} // namespace syncnorm::cuda
