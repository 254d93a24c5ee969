#pragma once

#include <cstdint>
#include <random>

namespace syncnorm::test {

/// A number from 0 to `n - 1`.
inline std::int64_t below(std::mt19937& random, std::int64_t n) {
  return std::uniform_int_distribution<std::int64_t>{0, n - 1}(random);
}

} // namespace syncnorm::test
