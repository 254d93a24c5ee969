#pragma once

// From what is known at run time to template arguments.

#include "kernels/half.hpp"
#include "syncnorm/tensor_view.hpp"

#include <type_traits>

namespace syncnorm::cuda {

template <class T>
struct element {
  using type = T;
};

/// Calls `f(element<T>{})` with the C++ type of elements of `type`.
template <class F>
void with_element(dtype type, const F& f) {
  switch (type) {
  case dtype::float32:
    return f(element<float>{});
  case dtype::float64:
    return f(element<double>{});
  case dtype::float16:
    return f(element<float16>{});
  case dtype::bfloat16:
    return f(element<bfloat16>{});
  }
}

/// Calls `f` with the constant 16 / sizeof(T) or, if `width` is 1, with 1.
template <class T, class F>
void with_width(int width, const F& f) {
  if (width == 1)
    f(std::integral_constant<int, 1>{});
  else
    f(std::integral_constant<int, int(16 / sizeof(T))>{});
}

} // namespace syncnorm::cuda
