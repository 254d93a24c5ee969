#pragma once

#include "trainer/run/messages.hpp"

#include "syncnorm/sync_relay.hpp"

#include <vector>

namespace syncnorm::train {

/// The relays of one process: its replicas, and relays of other processes,
/// register with them, and one message per layer and round is passed on. They
/// end with this object.
class relay_station {
public:
  relay_station() = default;
  relay_station(const relay_station&) = delete;
  relay_station& operator=(const relay_station&) = delete;
  ~relay_station();

  /// Spawns a relay for each master of `parent`.
  /// @param range the replicas that the relays stand for.
  /// @returns the lineup that these replicas follow.
  /// @throws failure, and spawns none, if `parent` lacks a master.
  lineup open(caf::actor_system& system, const lineup& parent,
              replica_range range);

  /// Ends the relays.
  void close();

private:
  std::vector<caf::actor> relays_;
};

} // namespace syncnorm::train
