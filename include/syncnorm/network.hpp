#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/caf_error.hpp"
#include "syncnorm/compat.hpp"

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <type_traits>

namespace syncnorm {

/// Makes a system of this configuration able to meet others over TCP: loads
/// CAF's middleman, and considers a node lost that has sent nothing for
/// `lost_after`, by heartbeats five times as often. Then a process that was
/// killed, stopped or cut off ends the round of the others, who learn which
/// replicas it held. Messages are read by the thread that receives them, where
/// a `sync_reduction` and a relay also run (`middleman.workers` is 0; a
/// configuration file may set it to more). Call it in the constructor of the
/// configuration, after `compat::init_types` or in a program of `CAF_MAIN` with
/// `caf::io::middleman` (otherwise CAF 1.x ends the process); both sides need
/// the same time, about a round's deadline.
/// @throws error `invalid_argument` for less than 5 ms.
void use_network(caf::actor_system_config& config,
                 caf::timespan lost_after = std::chrono::seconds{10});

/// How a node shows who it is, and whom it trusts: files in PEM format.
struct tls_options {
  /// This node's certificate, and behind it those between it and the CA's.
  std::string certificate;
  /// Its private key, without a passphrase.
  std::string key;
  /// The certificates of the CAs that vouch for the nodes, this one included.
  std::string ca;
};

/// Makes a system of this configuration publish and connect by TLS only, with
/// CAF's openssl module. Both sides show a certificate, and refuse one that is
/// missing, expired, signed by no CA of `options.ca`, or not made out for its
/// role (extended key usage: server, client). Names are not compared: whoever
/// holds a certificate of the CA may take part. Call it after `use_network`.
/// The files must stay as they are while the system lives: CAF reads them for
/// each connection.
/// @throws error `invalid_argument` for a file that cannot be read, a pipe or a
///         device, a file that is none of its kind, a key that is not the
///         certificate's, or a certificate of this node's own that has expired
///         or that no CA of `options.ca` has signed.
void use_tls(caf::actor_system_config& config, const tls_options& options);

/// Returns whether only this machine reaches that address: 127.x.x.x, ::1 or
/// localhost.
[[nodiscard]] bool is_loopback(const std::string& host);

/// Where a master is published.
struct publish_options {
  /// 0: any port that is free.
  std::uint16_t port = 0;
  /// An address of this machine. Any other than a loopback one needs `use_tls`,
  /// or `insecure`.
  std::string address = "127.0.0.1";
  /// Whether to do without TLS at any address. Nothing is encrypted and nobody
  /// is asked who they are: whoever reaches the port can take part. For closed
  /// networks only.
  bool insecure = false;
  /// Whether to take a port that connections of a process that has ended still
  /// hold.
  bool reuse = false;
  /// Gets a `std::string` for each connection that is refused, or whose other
  /// side refuses this node: "10.0.0.7 is refused: certificate has expired".
  /// CAF's logger gets it too, as a warning. Keep the handle: this alone does
  /// not keep it alive.
  caf::actor on_refusal = {};
};

/// How a published master is looked for.
struct connect_options {
  /// How long to wait for an answer, in all.
  caf::timespan patience = std::chrono::seconds{10};
  /// Whether to do without TLS at any address; see `publish_options`.
  bool insecure = false;
};

namespace detail {

/// Why nobody should serve at, or connect to, that address as it is.
[[nodiscard]] caf::error check_address(const char* function,
                                       const std::string& address, bool has_tls,
                                       bool insecure);

caf::expected<std::uint16_t> publish_actor(caf::actor_system& system,
                                           const caf::strong_actor_ptr& actor,
                                           std::set<std::string> interface,
                                           const publish_options& options);

/// Refuses message types that CAF 0.17 spoils between nodes: of NaN it makes
/// another number, and of an infinity it finds no end.
template <class... Messages>
constexpr void require_exact_messages() {
  static_assert(caf_line != 0 || !(has_loose_numbers<Messages> || ...),
                "CAF 0.17 does not send every number as it is: use "
                "double_array, or a type of your own with compat::field");
}

caf::expected<caf::strong_actor_ptr>
find_actor(caf::actor_system& system, const std::set<std::string>& interface,
           const std::string& host, std::uint16_t port,
           const connect_options& options);

} // namespace detail

/// Publishes a master, a relay, or any other actor, for other nodes. From then
/// on it lives until it is told to exit; its actor system waits for that.
/// @returns the port, or `invalid_argument` for no actor, a system without
///          CAF's middleman (see `use_network`), an address that is not this
///          machine's own or is not protected, or a port that cannot be opened
///          within a minute.
///
/// Threads: waits for actors, as do `remote_handle` and `remote_master`; not to
/// be called from one of CAF's workers.
template <class Handle>
[[nodiscard]] caf::expected<std::uint16_t>
publish_master(caf::actor_system& system, const Handle& master,
               const publish_options& options = {}) {
  return detail::publish_actor(system,
                               caf::actor_cast<caf::strong_actor_ptr>(master),
                               system.message_types<Handle>(), options);
}

/// Returns the handle of an actor that another process has published, once it
/// has answered: after CAF's handshake alone, two nodes that connect to each
/// other at the same moment may have no connection. An actor that answers
/// nothing, as one that blocks, is returned after a second, or when
/// `options.patience` is over. One thread of a process at a time: CAF 0.17 may
/// lose answers of a node that several connect to.
/// @returns `master_down` if nobody answers there in time, and at once if the
///          connection is refused or the actor has exited: trying again may
///          help; also if that side wants TLS and this one has none.
///          `invalid_argument` if the actor there is of another type, if TLS
///          refused one of the two, for an address that is not protected, or a
///          system without CAF's middleman (see `use_network`).
template <class Handle>
[[nodiscard]] caf::expected<Handle>
remote_handle(caf::actor_system& system, const std::string& host,
              std::uint16_t port, const connect_options& options = {}) {
  auto found = detail::find_actor(system, system.message_types<Handle>(), host,
                                  port, options);
  if (!found)
    return found.error();
  return caf::actor_cast<Handle>(*found);
}

/// Returns the handle of a master that another process has published, good for
/// `register_slave`, `register_slave_thread` and `spawn_sync_relay`. Errors as
/// `remote_handle`. With CAF 0.17 it does not compile for bare floating-point
/// messages, nor for vectors and arrays of them, whose NaN and infinities CAF
/// does not send as they are.
template <class In, class Out>
[[nodiscard]] caf::expected<sync_master_actor<In, Out>>
remote_master(caf::actor_system& system, const std::string& host,
              std::uint16_t port, const connect_options& options = {}) {
  detail::require_exact_messages<In, Out>();
  return remote_handle<sync_master_actor<In, Out>>(system, host, port, options);
}

} // namespace syncnorm
