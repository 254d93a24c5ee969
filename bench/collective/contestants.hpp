#pragma once

#include <cstdint>
#include <memory>

namespace caf {
class actor_system;
} // namespace caf

namespace syncnorm::bench {

/// One way to run rounds of a collective.
class contestant {
public:
  virtual ~contestant() = default;

  /// Runs `rounds` rounds one after the other. Returns whether every
  /// participant got the right payload in every round.
  virtual bool run(std::int64_t rounds) = 0;
};

using contestant_ptr = std::unique_ptr<contestant>;

/// `participants` counts the master's own message; each payload is
/// 2 * `channels` float32.
contestant_ptr make_event_driven(caf::actor_system& system, int participants,
                                 int channels);
/// The same with a sum as the reply, and with relays of fan-in `fan_in` if
/// there are more participants.
contestant_ptr make_reduction(caf::actor_system& system, int participants,
                              int channels, int fan_in);
contestant_ptr make_blocking(caf::actor_system& system, int participants,
                             int channels);
/// The least that CAF needs: gather and scatter by plain actors.
contestant_ptr make_raw_caf(caf::actor_system& system, int participants,
                            int channels);
/// The reference's design: queue, lock, condition variable.
contestant_ptr make_queue_design(int participants, int channels);

/// Memory in bytes per registered, idle slave, with `slaves` of them: including
/// the share of the master and of relays with fan-in `fan_in`.
double bytes_per_idle_slave(caf::actor_system& system, int slaves, int fan_in);

} // namespace syncnorm::bench
