#pragma once

#include "kernels/cuda/partition.hpp"

#include <cstdint>
#include <initializer_list>

namespace syncnorm::cuda {

/// True if vectors at each of `pointers` (null ones aside) are aligned.
[[nodiscard]] inline bool
start_aligned(std::initializer_list<const void*> pointers) {
  for (const auto* pointer : pointers)
    if (reinterpret_cast<std::uintptr_t>(pointer) % vector_bytes != 0)
      return false;
  return true;
}

/// True if vectors stay aligned from one sample of the tensor to the next.
[[nodiscard]] constexpr bool stride_aligned(const tensor_layout& layout) {
  auto width = std::int64_t(vector_bytes / size_of(layout.type));
  return layout.shape.samples <= 1 || is_dense(layout)
         || layout.sample_stride % width == 0;
}

} // namespace syncnorm::cuda
