#pragma once

#include <caf/all.hpp>

namespace syncnorm::detail {

/// Whether the actor is on another node, which may be lost and then cannot
/// answer.
template <class Handle>
[[nodiscard]] bool is_distant(const Handle& actor) {
  return actor && actor.node() != actor.home_system().node();
}

} // namespace syncnorm::detail
