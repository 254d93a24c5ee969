#pragma once

#include "syncnorm/detail/caf/line.hpp"

#if SYNCNORM_CAF_LEGACY
#include <caf/meta/type_name.hpp>
#endif

namespace syncnorm::detail {

template <class T>
struct named_field {
  const char* name;
  T& value;
};

template <class T>
named_field<T> field(const char* name, T& value) {
  return {name, value};
}

/// The body of an `inspect` overload for a message type without invariants.
template <class Inspector, class T, class... Fields>
auto inspect_object(Inspector& f, [[maybe_unused]] T& x, const char* type_name,
                    named_field<Fields>... fields) {
#if SYNCNORM_CAF_LEGACY
  return f(caf::meta::type_name(type_name), fields.value...);
#else
  return f.object(x).pretty_name(type_name).fields(
      f.field(fields.name, fields.value)...);
#endif
}

} // namespace syncnorm::detail
