#pragma once

#include "syncnorm/detail/caf/line.hpp"
#include "syncnorm/error.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

#if !SYNCNORM_CAF_LEGACY
#include <caf/detail/meta_object.hpp>
#endif

namespace syncnorm::detail {

/// Returns whether `x` holds a code of the enum `Code`.
template <class Code>
bool has_category(const caf::error& x) {
  if (x == caf::none)
    return false;
#if SYNCNORM_CAF_LEGACY
  return x.category() == caf::detail::error_factory<Code>::category;
#else
  return x.category() == caf::type_id_v<Code>;
#endif
}

/// Returns whether `x` says why an actor has ended.
inline bool is_exit(const caf::error& x) {
#if SYNCNORM_CAF_LEGACY
  return x != caf::none && x.category() == caf::atom("exit");
#else
  return has_category<caf::exit_reason>(x);
#endif
}

/// Whether element `i` is one of those types.
template <class... Ts>
bool is_one_of(const caf::message& x, std::size_t i) {
  return (x.match_element<Ts>(i) || ...);
}

/// Whether all that an error says besides its code is text and numbers.
inline bool is_plain(const caf::message& x) {
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!is_one_of<std::string, bool, std::int8_t, std::int16_t, std::int32_t,
                   std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t,
                   std::uint64_t, float, double>(x, i))
      return false;
  return true;
}

/// What CAF says of an error. Another node can send any category and any
/// values: on 1.x, a category that is no type of a code's size would end the
/// process, and so would, on 0.17, a duration without a unit. Only text and
/// numbers are written.
inline std::string error_text(const caf::error& x) {
  if (x == caf::none)
    return caf::to_string(x);
#if SYNCNORM_CAF_LEGACY
  return caf::to_string(
      is_plain(x.context()) ? x : caf::error{x.code(), x.category()});
#else
  const auto* type = caf::detail::global_meta_object_or_null(x.category());
  if (type == nullptr || type->simple_size != 1)
    return "an error of an unknown category";
  if (is_plain(x.context()))
    return caf::to_string(x);
  std::string result;
  auto code = x.code();
  type->stringify(result, &code);
  return result;
#endif
}

} // namespace syncnorm::detail

#if !SYNCNORM_CAF_LEGACY
namespace syncnorm {

/// For CAF's serializers.
template <class Inspector>
bool inspect(Inspector& f, errc& x) {
  return caf::default_enum_inspect(f, x);
}

} // namespace syncnorm
#endif

// 0.17 names a category by at most 10 characters, 1.x by the type.
#if SYNCNORM_CAF_LEGACY
#define SYNCNORM_ERROR_CODE_ENUM(type, category)                               \
  CAF_ERROR_CODE_ENUM(type, category)
#else
#define SYNCNORM_ERROR_CODE_ENUM(type, category) CAF_ERROR_CODE_ENUM(type)
#endif
