#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

#if SYNCNORM_CAF_LEGACY
#include <caf/meta/type_name.hpp>
#endif

namespace syncnorm::detail {

/// What CAF's printers show of `x`: its bytes, or its elements.
template <class T>
std::uint64_t printed_size(const T& x) {
  if constexpr (requires { x.bytes(); })
    return x.bytes();
  else
    return x.size();
}

/// Something that can be written and read as one block of bytes.
/// `load(f, x)` and `save(f, x)` of the type move the bytes by these two.
#if SYNCNORM_CAF_LEGACY

inline bool write_count(caf::serializer& f, std::uint64_t n) {
  auto count = static_cast<std::size_t>(n);
  return f.begin_sequence(count) == caf::none;
}

inline bool write_bytes(caf::serializer& f, std::span<const std::byte> bytes) {
  // The serializer takes a mutable pointer and does not write through it.
  return bytes.empty()
         || f.apply_raw(bytes.size(), const_cast<std::byte*>(bytes.data()))
                == caf::none;
}

inline bool read_count(caf::deserializer& f, std::uint64_t& n) {
  std::size_t count = 0;
  if (f.begin_sequence(count) != caf::none)
    return false;
  n = count;
  return true;
}

inline bool read_bytes(caf::deserializer& f, std::span<std::byte> bytes) {
  return bytes.empty() || f.apply_raw(bytes.size(), bytes.data()) == caf::none;
}

template <class T>
caf::error inspect_raw(caf::serializer& f, T& x, const char*) {
  if (x.save(f))
    return f.end_sequence();
  return caf::sec::invalid_argument;
}

template <class T>
caf::error inspect_raw(caf::deserializer& f, T& x, const char*) {
  if (x.load(f))
    return f.end_sequence();
  return caf::sec::invalid_argument;
}

/// For CAF's printers.
template <class Inspector, class T>
auto inspect_raw(Inspector& f, T& x, const char* type_name) {
  auto size = printed_size(x);
  return f(caf::meta::type_name(type_name), size);
}

#else

template <class Inspector>
bool write_count(Inspector& f, std::uint64_t n) {
  return f.begin_field("size") && f.value(n) && f.end_field();
}

template <class Inspector>
bool write_bytes(Inspector& f, std::span<const std::byte> bytes) {
  return f.value(caf::const_byte_span{bytes.data(), bytes.size()});
}

template <class Inspector>
bool read_count(Inspector& f, std::uint64_t& n) {
  return f.begin_field("size") && f.value(n) && f.end_field();
}

template <class Inspector>
bool read_bytes(Inspector& f, std::span<std::byte> bytes) {
  return f.value(caf::byte_span{bytes.data(), bytes.size()});
}

template <class Inspector, class T>
bool inspect_raw(Inspector& f, T& x, const char* type_name) {
  if (f.has_human_readable_format()) {
    auto size = printed_size(x);
    return f.object(x).pretty_name(type_name).fields(f.field("size", size));
  }
  if (!f.begin_object(caf::invalid_type_id, type_name))
    return false;
  bool done = false;
  if constexpr (Inspector::is_loading) {
    done = x.load(f);
    if (!done)
      f.emplace_error(caf::sec::invalid_argument, type_name);
  } else {
    done = x.save(f);
  }
  return done && f.end_object();
}

#endif

} // namespace syncnorm::detail
