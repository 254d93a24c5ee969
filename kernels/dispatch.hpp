#pragma once

// From a dtype to a template argument.

#include "kernels/half.hpp"
#include "syncnorm/tensor_view.hpp"

namespace syncnorm {

/// Names a type.
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

} // namespace syncnorm
