#pragma once

#include "syncnorm/detail/caf/line.hpp"
#include "syncnorm/error.hpp"

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

/// What CAF says of an error. Another node can send any category: on 1.x, one
/// that is no type of a code's size would end the process.
inline std::string error_text(const caf::error& x) {
#if !SYNCNORM_CAF_LEGACY
  if (x != caf::none) { // An empty error has no category to ask for.
    const auto* type = caf::detail::global_meta_object_or_null(x.category());
    if (type == nullptr || type->simple_size != 1)
      return "an error of an unknown category";
  }
#endif
  return caf::to_string(x);
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
