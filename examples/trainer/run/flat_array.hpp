#pragma once

#include "syncnorm/compat.hpp"
#include "syncnorm/shared_array.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace syncnorm::train {

/// All weights or gradients of a model, one parameter after the other, as a
/// message carries them: float64 for models in float64, else float32. The array
/// of the other type is empty.
struct flat_array {
  float_array f32;
  double_array f64;

  flat_array() = default;
  explicit flat_array(std::vector<float> values) : f32{std::move(values)} {}
  explicit flat_array(std::vector<double> values) : f64{std::move(values)} {}

  [[nodiscard]] std::size_t size() const noexcept {
    return f32.size() + f64.size();
  }

  /// The array of that type.
  template <class T>
  [[nodiscard]] const shared_array<T>& get() const noexcept {
    if constexpr (sizeof(T) == sizeof(float))
      return f32;
    else
      return f64;
  }
};

/// Whether none of `values` is infinite or not a number.
template <class T>
[[nodiscard]] bool all_finite(const shared_array<T>& values) {
  T witness = 0;
  for (auto x : values)
    witness += 0 * x;
  return witness == 0;
}

[[nodiscard]] inline bool all_finite(const flat_array& x) {
  return all_finite(x.f32) && all_finite(x.f64);
}

template <class Inspector>
auto inspect(Inspector& f, flat_array& x) {
  return compat::inspect_object(f, x, "syncnorm::train::flat_array",
                                compat::field("f32", x.f32),
                                compat::field("f64", x.f64));
}

} // namespace syncnorm::train
