#pragma once

#include "syncnorm/detail/caf/line.hpp"

namespace syncnorm::detail {

template <class Signature>
struct signature;

template <class... Results, class... Args>
struct signature<caf::result<Results...>(Args...)> {
#if SYNCNORM_CAF_LEGACY
  using type = typename caf::replies_to<Args...>::template with<Results...>;
#else
  using type = caf::result<Results...>(Args...);
#endif
};

/// A typed actor handle from signatures in the style of CAF 1.x:
/// `caf::result<Results...>(Args...)`.
template <class... Signatures>
using typed_actor = caf::typed_actor<typename signature<Signatures>::type...>;

} // namespace syncnorm::detail
