#pragma once

#include "bench/network/messages.hpp"

#include "syncnorm/network.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace syncnorm::bench {

/// A configuration for all processes of the benchmark, with TLS if `tls` is
/// given.
struct network_config : caf::actor_system_config {
  explicit network_config(const std::optional<tls_options>& tls = {});
};

/// Other processes on this machine. Each has an actor that
/// - answers (echo_atom, float_array) with the same array,
/// - takes part in rounds after (join_atom, master, identifier, n): sends
///   arrays of n ones, until a round fails,
/// - answers (receiver_atom, here) with a new actor, which runs on the thread
///   that brings messages or on CAF's workers. It keeps the array of
///   (chunk_atom, index, float_array), and answers its size; it answers
///   (total_atom) with the sum of the arrays that it has kept, and forgets
///   them.
/// On its socket, each answers `send_plainly`.
class peer_processes {
public:
  /// Call this before this process has threads. @throws std::runtime_error.
  explicit peer_processes(int count,
                          const std::optional<tls_options>& tls = {});

  peer_processes(const peer_processes&) = delete;
  peer_processes& operator=(const peer_processes&) = delete;

  /// Ends them.
  ~peer_processes();

  /// Connects to their actors.
  [[nodiscard]] std::vector<caf::actor> connect(caf::actor_system& system);

  /// A plain TCP connection to the first of them.
  [[nodiscard]] int socket() const;

private:
  struct process;

  std::vector<process> processes_;
};

} // namespace syncnorm::bench
