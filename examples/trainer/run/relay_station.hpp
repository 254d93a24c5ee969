#pragma once

#include "trainer/run/messages.hpp"

#include "syncnorm/sync_relay.hpp"

#include <vector>

namespace syncnorm::train {

/// The relays of one process: its replicas register with them, and one message
/// a layer and round goes to the masters. They end with this object.
class relay_station {
public:
  relay_station() = default;
  relay_station(const relay_station&) = delete;
  relay_station& operator=(const relay_station&) = delete;
  ~relay_station();

  /// Ends the relays of before, and spawns one for each master of `parent`.
  /// @param range the replicas of this process.
  /// @returns what they follow.
  /// @throws failure, and leaves them as they are, if `parent` lacks a master.
  lineup open(caf::actor_system& system, const lineup& parent,
              replica_range range);

private:
  void close();

  std::vector<caf::actor> relays_;
};

} // namespace syncnorm::train
