#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/errors.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace syncnorm {

/// Makes a system of this configuration able to meet others over TCP: loads
/// CAF's middleman, and takes a node for lost that has sent nothing for
/// `lost_after`, by heartbeats five times as often. Then a process that was
/// killed, stopped or cut off ends the round of the others, who learn which
/// replicas it held. Call it in the constructor of the configuration; both
/// sides need the same time, about a round's deadline.
/// @throws error `invalid_argument` for less than 5 ms.
void use_network(caf::actor_system_config& config,
                 caf::timespan lost_after = std::chrono::seconds{10});

namespace detail {

/// Why nobody should publish at that address without encryption, if so.
[[nodiscard]] caf::error check_address(const std::string& address,
                                       bool insecure);

[[nodiscard]] caf::error publish_error(const std::string& address,
                                       std::uint16_t port, const caf::error& x);

[[nodiscard]] caf::error connect_error(const std::string& host,
                                       std::uint16_t port, const caf::error& x);

} // namespace detail

/// Where a master is published.
struct publish_options {
  /// 0: any port that is free.
  std::uint16_t port = 0;
  /// A numeric address of this machine.
  std::string address = "127.0.0.1";
  /// Whether the address may be another than a loopback one. Nothing is
  /// encrypted and nobody is asked who they are: whoever reaches the port can
  /// take part. For closed networks only.
  bool insecure = false;
};

/// Publishes a master, or a relay, for slaves and relays on other nodes.
/// @returns the port, or `invalid_argument` for an address that is not this
///          machine's own, or a port that cannot be opened.
template <class Handle>
caf::expected<std::uint16_t>
publish_master(caf::actor_system& system, const Handle& master,
               const publish_options& options = {}) {
  if (auto refusal = detail::check_address(options.address, options.insecure);
      refusal != caf::none)
    return refusal;
  auto port =
      system.middleman().publish(master, options.port, options.address.c_str());
  if (!port)
    return detail::publish_error(options.address, options.port, port.error());
  return *port;
}

/// Returns the handle of a master that another process has published, good for
/// `register_slave`, `register_slave_thread` and `spawn_sync_relay`.
/// @returns `master_down` if nobody answers there, or somebody who is no master
///          of such messages.
template <class In, class Out>
caf::expected<sync_master_actor<In, Out>>
remote_master(caf::actor_system& system, const std::string& host,
              std::uint16_t port) {
  auto master =
      system.middleman().remote_actor<sync_master_actor<In, Out>>(host, port);
  if (!master)
    return detail::connect_error(host, port, master.error());
  return *master;
}

} // namespace syncnorm
