#pragma once

#include "syncnorm/compat.hpp"
#include "syncnorm/publish_master.hpp"
#include "syncnorm/remote_master.hpp"
#include "syncnorm/tls.hpp"

#include <chrono>

namespace syncnorm {

/// Makes a system of this configuration able to meet others over TCP: loads
/// CAF's middleman, and considers a node lost that has sent nothing for
/// `lost_after`, by heartbeats five times as often. Then a process that was
/// killed, stopped or cut off ends the round of the others, who learn which
/// replicas it held. Messages are read by the thread that receives them, where
/// a `sync_reduction` and a relay also run (`middleman.workers` is 0; a
/// configuration file may set it to more). Call it in the constructor of the
/// configuration, after `compat::init_types` or in a program of `CAF_MAIN` with
/// `caf::io::middleman` (otherwise CAF 1.x ends the process); both sides need
/// the same time, about a round's deadline.
/// @throws error `invalid_argument` for less than 5 ms.
void use_network(caf::actor_system_config& config,
                 caf::timespan lost_after = std::chrono::seconds{10});

} // namespace syncnorm
