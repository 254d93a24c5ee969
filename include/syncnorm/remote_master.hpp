#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/caf_error.hpp"
#include "syncnorm/detail/request_master.hpp"

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace syncnorm {

/// How to look for a published master.
struct connect_options {
  /// How long to wait for an answer, in all.
  caf::timespan patience = std::chrono::seconds{10};
  /// Whether to do without TLS at any address; see `publish_options`.
  bool insecure = false;
};

namespace detail {

/// Refuses message types that CAF 0.17 corrupts between nodes: it turns NaN
/// into another number, and never finishes with an infinity.
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

/// Returns the handle of an actor that another process has published, once that
/// actor has answered: after CAF's handshake alone, two nodes that connect to
/// each other at the same moment may have no connection. An actor that answers
/// nothing, such as a blocking actor, is returned after a second, or when
/// `options.patience` is over. Only one thread of a process may call this at a
/// time: CAF 0.17 may lose answers of a node to which several threads connect.
/// @returns `master_down` if nobody answers there in time, and at once if the
///          connection is refused or the actor has exited: trying again may
///          help; also if that side wants TLS and this side has none.
///          `invalid_argument` if the actor there is of another type, if TLS
///          refused one of the two sides, for an address that is not protected,
///          a bad configuration, or a system without CAF's middleman (see
///          `use_network`).
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

/// Sends a request to an actor of another process from the actor `self`, a
/// pointer or a `caf::scoped_actor`. With CAF's own request, the sender waits
/// for the whole timeout if the node is already lost. Here the answer is
/// `master_down` at once if the actor has exited or its node is lost, before or
/// after the request, or CAF's `request_receiver_down` if this node has not yet
/// heard of the actor's end.
/// @param timeout after that, the answer is CAF's `request_timeout`; an actor
///                of this process has no limit.
template <class Self, class Handle, class... Ts>
auto request_remote(Self&& self, caf::timespan timeout, const Handle& handle,
                    Ts&&... xs) {
  return detail::request_master(self, timeout, handle, detail::no_replica,
                                std::forward<Ts>(xs)...);
}

/// Returns the handle of a master that another process has published, usable
/// for `register_slave`, `register_slave_thread` and `spawn_sync_relay`. Errors
/// as `remote_handle`. With CAF 0.17 it does not compile for bare
/// floating-point messages, nor for vectors and arrays of them: CAF does not
/// send their NaN and infinities as they are.
template <class In, class Out>
[[nodiscard]] caf::expected<sync_master_actor<In, Out>>
remote_master(caf::actor_system& system, const std::string& host,
              std::uint16_t port, const connect_options& options = {}) {
  detail::require_exact_messages<In, Out>();
  return remote_handle<sync_master_actor<In, Out>>(system, host, port, options);
}

} // namespace syncnorm
