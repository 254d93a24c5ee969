#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <cstddef>

namespace syncnorm::detail {

/// Returns an actor that opens ports and connects as CAF's own does, or that of
/// its openssl module if it is loaded, but by connections of type
/// `bounded_scribe`: a message takes memory as its bytes arrive, and has
/// `limit` bytes at most. It takes no longer than `patience` to connect. It is
/// to be ended after use; what it has opened stays.
[[nodiscard]] caf::io::middleman_actor
spawn_bounded_doorman(caf::actor_system& system, std::size_t limit,
                      caf::timespan patience);

} // namespace syncnorm::detail
