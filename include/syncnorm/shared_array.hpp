#pragma once

#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/detail/raw_array.hpp"
#include "syncnorm/detail/unset_vector.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace syncnorm {

/// An immutable array of float32, float64 or int64 in a message: inside a
/// process, copies share one block of memory. To another node, it travels as a
/// count and raw little-endian bytes, so that every value arrives with the same
/// bits: infinities, NaN payloads, negative zero and subnormals too.
template <class T>
class shared_array {
public:
  /// The type of the elements.
  using value_type = T;

  /// The largest array that is accepted from another node, in elements. It is
  /// further limited by `syncnorm.max-message`, 1 GiB unless configured.
  static constexpr std::uint64_t max_size = std::uint64_t{1} << 28;

  shared_array() = default;

  /// Takes over `values` without copying them.
  explicit shared_array(std::vector<T> values)
      : values_{keep(std::move(values))} {}

  /// Takes those values.
  shared_array(std::initializer_list<T> values)
      : shared_array{std::vector<T>(values)} {}

  /// Number of elements.
  [[nodiscard]] std::size_t size() const noexcept {
    return values_ ? values_->size() : 0;
  }

  /// The elements.
  [[nodiscard]] const T* data() const noexcept {
    return values_ ? values_->data() : nullptr;
  }

  /// The first element.
  [[nodiscard]] const T* begin() const noexcept {
    return data();
  }

  /// Past the last element.
  [[nodiscard]] const T* end() const noexcept {
    return data() + size();
  }

  /// Element `i`, which must be there.
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept {
    return data()[i];
  }

  /// All elements.
  [[nodiscard]] std::span<const T> view() const noexcept {
    return {data(), size()};
  }

  /// By `==` of T, element by element: 0 equals -0, NaN differs from itself.
  friend bool operator==(const shared_array& x, const shared_array& y) {
    return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin());
  }

  // -- serialization ----------------------------------------------------------

  /// Writes it as one block of bytes; returns whether that worked.
  template <class Sink>
  bool save(Sink& f) const {
    return detail::save_array(f, view());
  }

  /// Reads what `save` has written; returns whether it is sound.
  template <class Source>
  bool load(Source& f) {
    detail::unset_vector<T> values;
    if (!detail::load_array(f, values, max_size))
      return false;
    values_ = keep(std::move(values));
    return true;
  }

  template <class Inspector>
  friend auto inspect(Inspector& f, shared_array& x) {
    return detail::inspect_raw(f, x, "syncnorm::shared_array");
  }

private:
  using shared_view = std::shared_ptr<const std::span<const T>>;

  /// Returns a view of all of `values`, a vector, which lives as long as the
  /// view.
  template <class Vector>
  static shared_view keep(Vector values) {
    struct kept {
      explicit kept(Vector x) : values{std::move(x)}, all{values} {}
      Vector values;
      std::span<const T> all;
    };
    auto here = std::make_shared<const kept>(std::move(values));
    return {here, &here->all};
  }

  shared_view values_;
};

/// An array of float32.
using float_array = shared_array<float>;
/// An array of float64.
using double_array = shared_array<double>;
/// An array of int64.
using int64_array = shared_array<std::int64_t>;

} // namespace syncnorm
