#pragma once

#include "syncnorm/detail/caf_compat.hpp"

namespace syncnorm::detail {

/// Returns an actor that opens ports and connects as CAF's own does, or that of
/// its openssl module if it is loaded, but by connections of type
/// `bounded_scribe`: a message takes memory as its bytes arrive, and is no
/// longer than `syncnorm.max-message` of the configuration. It is to be ended
/// after use; what it has opened stays.
/// @throws error `invalid_argument` as `read_defaults`.
[[nodiscard]] caf::io::middleman_actor
spawn_bounded_doorman(caf::actor_system& system);

} // namespace syncnorm::detail
