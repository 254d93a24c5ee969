#pragma once

#include <type_traits>

namespace syncnorm::cuda {

/// Calls `f` with the constant 16 / sizeof(T) or, if `width` is 1, with 1.
template <class T, class F>
void with_width(int width, const F& f) {
  if (width == 1)
    f(std::integral_constant<int, 1>{});
  else
    f(std::integral_constant<int, int(16 / sizeof(T))>{});
}

} // namespace syncnorm::cuda
