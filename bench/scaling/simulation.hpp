#pragma once

#include <cstdint>

namespace syncnorm::bench {

/// A network between nodes that handle one message at a time.
struct network_model {
  /// Time of a message on its way, in microseconds.
  double delay = 50;
  /// A node's time for each message that it receives or sends.
  double handling = 10;
};

/// How long a round takes, in microseconds, from the moment when all replicas
/// have their messages ready until the last one has its reply. Each replica is
/// on a node of its own; the relays are those of `plan_relays`, each on the
/// node of its first replica, and the master is on replica 0's. Inside a node
/// messages cost nothing.
/// @throws std::logic_error if a replica has no reply at the end.
double simulate_round(const network_model& model, std::int64_t replicas,
                      std::int64_t fan_in);

/// The same by formula, 2 log_f(R) (delay + f handling), for any fan-in f.
double estimate_round(const network_model& model, std::int64_t replicas,
                      double fan_in);

/// The fan-in at which `estimate_round` is least, for any number of replicas:
/// the solution f of f (ln f - 1) = delay / handling.
double best_fan_in(const network_model& model);

} // namespace syncnorm::bench
