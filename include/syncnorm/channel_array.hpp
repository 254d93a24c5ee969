#pragma once

#include "syncnorm/tensor_view.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace syncnorm {

/// One value per channel, in host memory: a parameter, a statistic or a
/// gradient of a layer. Its type is float32 or float64.
class channel_array {
public:
  /// An array without elements.
  channel_array() = default;

  /// @param type a tensor's type; the array has its `statistics_type`.
  channel_array(dtype type, std::size_t size, double value = 0);

  /// float32 or float64.
  [[nodiscard]] dtype type() const noexcept;

  /// Number of channels.
  [[nodiscard]] std::size_t size() const noexcept;

  /// Whether there are none.
  [[nodiscard]] bool empty() const noexcept {
    return size() == 0;
  }

  /// The first element, null if there is none.
  [[nodiscard]] void* data() noexcept;
  /// The elements, of the array's type.
  [[nodiscard]] const void* data() const noexcept;

  /// Element `i`, whatever its type; `i` must be below `size()`.
  [[nodiscard]] double operator[](std::size_t i) const;

  /// Sets all elements to `value`.
  void fill(double value);

  /// Sets the elements to `values`, rounded to this type; there must be
  /// `size()` of them.
  void assign(std::span<const double> values);

  /// Adds `other`, which must have the same type and size.
  void add(const channel_array& other);

  /// The elements as float64; nothing is lost.
  [[nodiscard]] std::vector<double> widened() const;

  /// Appends the elements as float64.
  void append_to(std::vector<double>& values) const;

  /// The elements in their own type.
  [[nodiscard]] std::variant<std::span<float>, std::span<double>> view();

private:
  std::variant<std::vector<float>, std::vector<double>> values_;
};

/// An array of a layer's state under PyTorch's name for it.
struct named_array {
  /// `weight`, `bias`, `running_mean`, `running_var` or `num_batches_tracked`;
  /// online `running_m2` and `num_elements_tracked`, which PyTorch does not
  /// have.
  std::string name;
  /// The array itself: C elements, or one int64 for a counter.
  std::variant<std::span<float>, std::span<double>, std::span<std::int64_t>>
      values;
};

} // namespace syncnorm
