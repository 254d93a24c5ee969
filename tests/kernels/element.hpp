#pragma once

// One element of any dtype in memory, with float64 as its interface.

#include "kernels/half.hpp"
#include "syncnorm/tensor_view.hpp"

#include <cstddef>
#include <cstring>

namespace syncnorm::test {

template <class T>
T read_as(const std::byte* p) {
  T result;
  std::memcpy(&result, p, sizeof(T));
  return result;
}

/// Reads the element at `p`.
inline double read_element(dtype type, const std::byte* p) {
  switch (type) {
  case dtype::float32:
    return double(read_as<float>(p));
  case dtype::float64:
    return read_as<double>(p);
  case dtype::float16:
    return double(to_float(read_as<float16>(p)));
  case dtype::bfloat16:
    return double(to_float(read_as<bfloat16>(p)));
  }
  return 0;
}

/// Writes `value`, rounded to `type`, at `p`.
inline void write_element(dtype type, std::byte* p, double value) {
  auto put = [p](auto element) { std::memcpy(p, &element, sizeof(element)); };
  switch (type) {
  case dtype::float32:
    return put(float(value));
  case dtype::float64:
    return put(value);
  case dtype::float16:
    return put(to_float16(float(value)));
  case dtype::bfloat16:
    return put(to_bfloat16(float(value)));
  }
}

} // namespace syncnorm::test
