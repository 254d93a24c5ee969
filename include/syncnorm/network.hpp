#pragma once

#include "syncnorm/compat.hpp"
#include "syncnorm/publish_master.hpp"
#include "syncnorm/remote_master.hpp"
#include "syncnorm/tls.hpp"

#include <chrono>

namespace syncnorm {

/// Enables a system of this configuration to meet others over TCP: loads CAF's
/// middleman, and considers a node lost if it has sent nothing for
/// `lost_after`; heartbeats are sent five times as often. So if a process is
/// killed, stopped or cut off, the round ends for the others, and they learn
/// which replicas it held. Messages are read by the thread that receives them,
/// on which a `sync_reduction` and a relay also run (`middleman.workers` is 0;
/// a configuration file may set it to more). Call it in the constructor of the
/// configuration, after `compat::init_types` or in a program of `CAF_MAIN` with
/// `caf::io::middleman` (otherwise CAF 1.x ends the process). Both sides need
/// the same `lost_after`, about a round's deadline.
/// @throws error `invalid_argument` for less than 5 ms.
void use_network(caf::actor_system_config& config,
                 caf::timespan lost_after = std::chrono::seconds{10});

} // namespace syncnorm
