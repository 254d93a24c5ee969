#pragma once

// Where an element lies in a tensor whose samples may have gaps between them.

#include "kernels/cuda/divisor.hpp"

#include <cstdint>

namespace syncnorm::cuda {

/// Finds the sample of an element from its flat index, that is, counted without
/// gaps between samples, in memory order.
struct sample_index {
  divisor per_sample;
  /// No tensor of the call has gaps between its samples.
  bool dense = true;
};

/// Elements of a tensor and how many lie between one sample and the next.
template <class T>
struct gapped {
  T* data = nullptr;
  std::int64_t gap = 0;

  /// @tparam Plain  the call's tensors are known to have no gaps.
  template <bool Plain>
  [[nodiscard]] SYNCNORM_HOST_DEVICE T* at(const sample_index& samples,
                                           std::int64_t flat) const {
    if (Plain || samples.dense)
      return data + flat;
    return data + flat + samples.per_sample.quotient(flat) * gap;
  }
};

} // namespace syncnorm::cuda
