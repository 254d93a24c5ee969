#pragma once

// How far results may be from a reference. The table in docs/numerics.md shows
// the same numbers and says why they are what they are; tolerance.test.cpp
// keeps the two from drifting apart.

#include "syncnorm/tensor_view.hpp"

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

namespace syncnorm::tolerance {

/// The greatest error of an operation, relative to a scale that the name
/// after the operation's tells, for each dtype of the tensor.
struct row {
  std::string_view operation;
  double float32;
  double float64;
  double float16;
  double bfloat16;
};

inline constexpr std::array rows{
    row{"batch_moments: mean", 1e-6, 2e-15, 5e-6, 5e-6},
    row{"batch_moments: m2", 1e-5, 2e-14, 1e-5, 1e-5},
    row{"merge_moments: mean", 1e-6, 2e-15, 1e-6, 1e-6},
    row{"merge_moments: m2", 2e-6, 5e-15, 2e-6, 2e-6},
    row{"finalize_moments", 2e-7, 2e-15, 2e-7, 2e-7},
    row{"normalize", 5e-7, 1e-15, 5e-4, 4e-3},
    row{"backward_reduce", 1e-5, 2e-14, 1e-5, 1e-5},
    row{"backward_input", 1e-6, 2e-15, 5e-4, 4e-3},
    row{"finite differences", 0, 1e-7, 0, 0},
    row{"libtorch: statistics", 2e-6, 1e-12, 2e-6, 2e-6},
    row{"libtorch: elements", 2e-6, 1e-12, 5e-4, 4e-3},
};

/// The tolerance of `operation` on tensors of `type`.
inline double of(std::string_view operation, dtype type) {
  for (const auto& entry : rows) {
    if (entry.operation != operation)
      continue;
    switch (type) {
    case dtype::float32:
      return entry.float32;
    case dtype::float64:
      return entry.float64;
    case dtype::float16:
      return entry.float16;
    case dtype::bfloat16:
      return entry.bfloat16;
    }
  }
  throw std::out_of_range{"no tolerance for " + std::string{operation}};
}

/// What an element may be off in addition to its relative error: half the
/// distance between the smallest numbers of `type`, where it matters.
inline double smallest(dtype type) {
  return type == dtype::float16 ? 0x1p-25 : 0;
}

} // namespace syncnorm::tolerance
