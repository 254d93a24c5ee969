#pragma once

#include "door.hpp"

#include "syncnorm/detail/caf_compat.hpp"

#include <cstddef>
#include <memory>

namespace syncnorm::detail {

/// Returns an actor that opens ports and connects as CAF's own does, or that of
/// its openssl module if it is loaded, but by connections of type
/// `bounded_scribe`: a long message takes memory as its bytes arrive, and has
/// `limit` bytes at most. It takes no longer than `patience` to connect. It is
/// to be ended after use; what it has opened stays.
/// @param opened where refused connections to a port that it opens are told.
[[nodiscard]] caf::io::middleman_actor
spawn_bounded_doorman(caf::actor_system& system, std::size_t limit,
                      caf::timespan patience,
                      std::shared_ptr<const door> opened = nullptr);

} // namespace syncnorm::detail
