#pragma once

#include "door.hpp"

#include "syncnorm/detail/caf_compat.hpp"

#include <cstddef>
#include <memory>

namespace syncnorm::detail {

/// Returns an actor that opens ports and connects like CAF's own actor, or that
/// of CAF's openssl module if this is loaded, but with connections of type
/// `bounded_scribe`: a long message takes memory as its bytes arrive, and has
/// at most `limit` bytes. The actor takes no longer than `patience` to connect.
/// End it after use; what it has opened stays.
/// @param opened where refused connections to a port that it opens are
/// reported.
[[nodiscard]] caf::io::middleman_actor
spawn_bounded_doorman(caf::actor_system& system, std::size_t limit,
                      caf::timespan patience,
                      std::shared_ptr<const door> opened = nullptr);

} // namespace syncnorm::detail
