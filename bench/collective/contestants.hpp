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

  /// Runs that many rounds one after the other. Returns whether every
  /// participant got the right payload in every round.
  virtual bool run(std::int64_t rounds) = 0;
};

using contestant_ptr = std::unique_ptr<contestant>;

/// `participants` counts the master's own message; each payload is
/// 2 * `channels` float32.
contestant_ptr make_event_driven(caf::actor_system& system, int participants,
                                 int channels);
/// The same with a sum as the reply, and relays of that fan-in if there are
/// more participants.
contestant_ptr make_reduction(caf::actor_system& system, int participants,
                              int channels, int fan_in);
contestant_ptr make_blocking(caf::actor_system& system, int participants,
                             int channels);
/// The least that CAF can do: gather and scatter by plain actors.
contestant_ptr make_raw_caf(caf::actor_system& system, int participants,
                            int channels);
/// The reference's design: queue, lock, condition variable.
contestant_ptr make_queue_design(int participants, int channels);

/// Memory in bytes that each of that many registered, idle slaves takes, the
/// master's part included, and that of relays of that fan-in.
double bytes_per_idle_slave(caf::actor_system& system, int slaves, int fan_in);

} // namespace syncnorm::bench
