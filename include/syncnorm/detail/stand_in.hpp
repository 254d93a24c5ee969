#pragma once

#include "syncnorm/detail/caf_compat.hpp"

namespace syncnorm::detail {

/// Why an actor that has exited did; of one on another node, as far as this
/// node knows.
[[nodiscard]] caf::error reason_of_exit(caf::abstract_actor& gone);

/// Returns an actor that answers the one request that it gets by `reason`, and
/// ends. CAF answers in the place of an actor that has exited, too, but by an
/// error of its own, which cannot say whose master that was.
[[nodiscard]] caf::actor spawn_stand_in(caf::actor_system& system,
                                        caf::error reason);

} // namespace syncnorm::detail
