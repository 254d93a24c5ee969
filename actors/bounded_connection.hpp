#pragma once

#include "syncnorm/detail/caf_compat.hpp"

namespace syncnorm::detail {

/// Returns an actor that opens ports and connects as CAF's own does, without
/// TLS, by connections that
/// - take memory as the bytes of a message arrive. CAF's own take at once what
///   the header of a message announces, up to 4 GiB.
/// - end when a message is announced that is longer than `syncnorm.max-message`
///   of the configuration.
/// - tell `watch_door` of those that a port had to refuse.
/// It is to be ended after use; what it has opened stays.
/// @throws error `invalid_argument` as `read_defaults`.
[[nodiscard]] caf::io::middleman_actor
spawn_bounded_doorman(caf::actor_system& system);

} // namespace syncnorm::detail
