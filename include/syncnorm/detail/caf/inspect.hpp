#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#if SYNCNORM_CAF_LEGACY
#include <caf/detail/stringification_inspector.hpp>
#include <caf/meta/type_name.hpp>
#endif

namespace syncnorm::detail {

/// A floating-point number as a message carries it: its bits. CAF's own
/// encoding changes some: 0.17 turns NaN into 0, and never finishes an
/// infinity.
template <std::floating_point T>
struct exact {
  using bits_type =
      std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

  bits_type bits = 0;

  exact() = default;
  exact(T x) : bits{std::bit_cast<bits_type>(x)} {}

  operator T() const noexcept {
    return std::bit_cast<T>(bits);
  }
};

/// Text for people shows the number.
template <class Inspector, class T>
auto inspect(Inspector& f, exact<T>& x) {
#if SYNCNORM_CAF_LEGACY
  if constexpr (std::is_same_v<Inspector,
                               caf::detail::stringification_inspector>) {
    T value = x;
    return f(value);
  } else {
    return f(x.bits);
  }
#else
  if (!f.has_human_readable_format())
    return f.apply(x.bits);
  T value = x;
  auto done = f.apply(value);
  x = value;
  return done;
#endif
}

template <class T>
struct named_field {
  const char* name;
  T& value;
};

/// Stands for a number while a message is written or read.
template <class T>
struct exact_field {
  const char* name;
  T& place;
  exact<T> value{place};

  exact_field(const char* called, T& x) : name{called}, place{x} {}
  exact_field(const exact_field&) = delete;
  exact_field& operator=(const exact_field&) = delete;

  /// Stores only a change: others may read a number that is only written to a
  /// message.
  ~exact_field() {
    if (value.bits != exact<T>{place}.bits)
      place = value;
  }
};

/// Whether CAF itself would send the numbers of a message or a field; it
/// corrupts some.
template <class T>
inline constexpr bool has_loose_numbers = std::is_floating_point_v<T>;

template <class T, class Allocator>
inline constexpr bool has_loose_numbers<std::vector<T, Allocator>> =
    has_loose_numbers<T>;

template <class T, std::size_t Size>
inline constexpr bool has_loose_numbers<std::array<T, Size>> =
    has_loose_numbers<T>;

template <class T>
named_field<T> field(const char* name, T& value) {
  static_assert(!has_loose_numbers<std::remove_const_t<T>>,
                "CAF does not send every number as it is, and what is no float "
                "or double itself goes its way: use float_array or "
                "double_array");
  return {name, value};
}

template <std::floating_point T>
requires(sizeof(T) <= 8) exact_field<T> field(const char* name, T& value) {
  return {name, value};
}

/// The body of an `inspect` overload for a message type without invariants.
/// @param fields what `field` returns.
template <class Inspector, class T, class... Fields>
auto inspect_object(Inspector& f, [[maybe_unused]] T& x, const char* type_name,
                    Fields&&... fields) {
#if SYNCNORM_CAF_LEGACY
  return f(caf::meta::type_name(type_name), fields.value...);
#else
  return f.object(x).pretty_name(type_name).fields(
      f.field(fields.name, fields.value)...);
#endif
}

} // namespace syncnorm::detail
