#pragma once

#include "syncnorm/actors.hpp"

#include <cstdint>
#include <set>
#include <string>

namespace syncnorm {

/// Returns whether only this machine can reach that address: 127.x.x.x, ::1 or
/// localhost.
[[nodiscard]] bool is_loopback(const std::string& host);

/// Where a master is published.
struct publish_options {
  /// 0: any port that is free.
  std::uint16_t port = 0;
  /// An address of this machine; empty: all of its addresses. Any address other
  /// than loopback needs `use_tls` or `insecure`.
  std::string address = "127.0.0.1";
  /// Whether to do without TLS at any address. Nothing is encrypted or
  /// authenticated: anyone who can reach the port can take part. For closed
  /// networks only.
  bool insecure = false;
  /// Whether to take a port that is still held by connections of an ended
  /// process.
  bool reuse = false;
  /// Gets a `std::string` for each connection that is refused, or whose other
  /// side refuses this node: "10.0.0.7 is refused: certificate has expired".
  /// CAF's logger gets it too, as a warning. Keep a handle yourself: this
  /// member alone does not keep the actor alive.
  caf::actor on_refusal = {};
};

namespace detail {

caf::expected<std::uint16_t> publish_actor(caf::actor_system& system,
                                           const caf::strong_actor_ptr& actor,
                                           std::set<std::string> interface,
                                           const publish_options& options);

} // namespace detail

/// Publishes a master, a relay, or any other actor, for other nodes. From then
/// on, the actor lives until it is told to exit; its actor system waits for
/// that.
/// @returns the port, or `invalid_argument` for no actor, a system without
///          CAF's middleman (see `use_network`), a bad configuration, an
///          address that is not this machine's own or is not protected, or a
///          port that cannot be opened within a minute.
///
/// Threads: waits for actors, as do `remote_handle` and `remote_master`; do not
/// call it from one of CAF's workers.
template <class Handle>
[[nodiscard]] caf::expected<std::uint16_t>
publish_master(caf::actor_system& system, const Handle& master,
               const publish_options& options = {}) {
  return detail::publish_actor(system,
                               caf::actor_cast<caf::strong_actor_ptr>(master),
                               system.message_types<Handle>(), options);
}

} // namespace syncnorm
