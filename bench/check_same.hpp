#pragma once

#include "kernels/half.hpp"
#include "syncnorm/tensor_view.hpp"

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace syncnorm::bench {

/// Throws unless two tensors of `layout`, float32 or bfloat16, agree within
/// `tolerance`, both relative to theirs and absolute.
inline void check_same(const std::string& what, const void* ours,
                       const void* theirs, const tensor_layout& layout,
                       float tolerance) {
  auto n = layout.shape.per_channel() * layout.shape.channels;
  auto read = [&](const void* data, std::int64_t i) {
    return layout.type == dtype::bfloat16
               ? to_float(static_cast<const bfloat16*>(data)[i])
               : static_cast<const float*>(data)[i];
  };
  for (std::int64_t i = 0; i < n; ++i) {
    auto a = read(ours, i);
    auto b = read(theirs, i);
    if (!(std::abs(a - b) <= tolerance * (1 + std::abs(b))))
      throw std::runtime_error{what + " differs at " + std::to_string(i) + ": "
                               + std::to_string(a) + " and "
                               + std::to_string(b)};
  }
}

} // namespace syncnorm::bench
