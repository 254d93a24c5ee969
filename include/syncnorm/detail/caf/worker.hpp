#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <caf/io/all.hpp>

#if !SYNCNORM_CAF_LEGACY
#include <caf/scheduler.hpp>
#endif

namespace syncnorm::detail {

/// What an actor runs on.
#if SYNCNORM_CAF_LEGACY
using worker_type = caf::execution_unit;
#else
using worker_type = caf::scheduler;
#endif

/// What an actor's `enqueue` returns.
#if SYNCNORM_CAF_LEGACY
using enqueue_result = void;
#else
using enqueue_result = bool;
#endif

/// What `enqueue` gets when the network's thread itself brings a message, as it
/// does after `read_where_received`; null without a network.
inline worker_type* network_worker(caf::actor_system& system) {
  return system.has_middleman() ? &system.middleman().backend() : nullptr;
}

/// The broker that speaks CAF's protocol, for all connections of a system.
inline caf::actor protocol_broker(caf::actor_system& system) {
#if SYNCNORM_CAF_LEGACY
  constexpr auto name = caf::atom("BASP");
#else
  constexpr auto name = "BASP";
#endif
  return system.middleman().named_broker<caf::io::basp_broker>(name);
}

} // namespace syncnorm::detail
