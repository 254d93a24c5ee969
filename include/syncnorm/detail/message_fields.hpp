#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <cstdint>

// Message fields that travel in another form than they are used in.

namespace syncnorm::detail {

/// An enumerator as a message carries it. Values that come from another node
/// may be none of the enumerators.
template <class Enum>
struct enum_code {
  std::uint8_t code = 0;

  enum_code() = default;
  enum_code(Enum x) : code{static_cast<std::uint8_t>(x)} {}

  operator Enum() const noexcept {
    return static_cast<Enum>(code);
  }
};

template <class Inspector, class Enum>
auto inspect(Inspector& f, enum_code<Enum>& x) {
  return inspect_object(f, x, "syncnorm::enum_code", field("code", x.code));
}

/// `resend` of a message as it travels: values on a device stay there, and the
/// message asks to be sent again.
template <class Message>
struct travelling_resend {
  Message& of;
  bool value = of.resend || of.values.on_device();

  explicit travelling_resend(Message& x) : of{x} {}
  travelling_resend(const travelling_resend&) = delete;
  travelling_resend& operator=(const travelling_resend&) = delete;

  /// Writes back only what was read.
  ~travelling_resend() {
    if (value != of.resend && !of.values.on_device())
      of.resend = value;
  }
};

} // namespace syncnorm::detail
