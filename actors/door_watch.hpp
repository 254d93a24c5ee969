#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <cstdint>
#include <string>

namespace syncnorm::detail {

/// From now on a connection to that port of this process that is refused is
/// told to `listener`, if there is one, and to the logger of the actor that is
/// published there.
void watch_door(std::uint16_t port, const caf::strong_actor_ptr& published,
                const caf::actor& listener);

/// Tells that `who` was refused at that port, and why: "10.0.0.7 is refused:
/// certificate has expired". Waits for nobody.
void tell_door(std::uint16_t port, const std::string& who,
               const std::string& why);

} // namespace syncnorm::detail
