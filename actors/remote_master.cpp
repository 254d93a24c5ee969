#include "syncnorm/remote_master.hpp"

#include "network_access.hpp"
#include "time_budget.hpp"
#include "tls_watch.hpp"

#include "syncnorm/detail/answer_if_lost.hpp"
#include "syncnorm/detail/caf/logger_guard.hpp"
#include "syncnorm/detail/is_distant.hpp"
#include "syncnorm/detail/stand_in.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/message_types.hpp"

#include <caf/openssl/manager.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace syncnorm::detail {

namespace {

/// The connection ended after the handshake.
constexpr auto connection_ended = caf::sec::remote_linking_failed;

/// Why there was no answer, in words for what CAF only has a name for.
std::string silence_text(const time_budget& patience, const caf::error& x) {
  if (is_timeout(x) || x == caf::sec::connection_timeout)
    return patience.text();
  if (x == caf::sec::disconnect_during_handshake)
    return "the other side ended the connection in the handshake: it may want "
           "TLS, or speak another version of CAF";
  if (x == caf::sec::serializing_basp_payload_failed
      || x == caf::sec::incompatible_versions)
    return "what the other side says in the handshake cannot be read: it may "
           "speak another version of CAF";
  if (x == connection_ended)
    return "the connection ended";
  return text_of(x);
}

caf::error connect_error(const std::string& host, std::uint16_t port,
                         const time_budget& patience, const caf::error& x) {
  if (auto why = tls_failure(host, port); !why.empty())
    return make_error(errc::invalid_argument,
                      fmt::format("remote_master: no trust between this node "
                                  "and port {} of {}: {}",
                                  port, host, why));
  if (x == caf::sec::unexpected_actor_messaging_interface)
    return make_error(
        errc::invalid_argument,
        fmt::format("remote_master: port {} of {}: the actor there is of "
                    "another type, or only one of the two nodes has registered "
                    "its message types",
                    port, host));
  // Already in words.
  if (code_of(x))
    return x;
  return make_error(errc::master_down,
                    fmt::format("remote_master: no such master answers at port "
                                "{} of {}: {}",
                                port, host, silence_text(patience, x)));
}

/// Nodes are told apart by host and process number.
caf::error same_node_error(const std::string& host, std::uint16_t port) {
  return make_error(
      errc::invalid_argument,
      fmt::format("remote_master: port {} of {}: expected another process, got "
                  "one of this one's host and number, as containers may have, "
                  "which CAF takes for this one",
                  port, host));
}

/// Asks once.
/// @param limit  maximum bytes per message.
caf::expected<caf::strong_actor_ptr>
look_up(caf::actor_system& system, std::size_t limit,
        const std::set<std::string>& interface, const std::string& host,
        std::uint16_t port, caf::timespan patience) {
  caf::expected<caf::strong_actor_ptr> result{caf::sec::runtime_error};
  logger_guard guard;
  caf::scoped_actor self{system};
  request_within(self, patience, doorman{system, limit, patience}.actor(),
                 caf::connect_atom_v, host, port)
      .receive(
          [&](const caf::node_id& node, const caf::strong_actor_ptr& actor,
              const std::set<std::string>& found) {
            if (!actor)
              result =
                  node == system.node()
                      ? same_node_error(host, port)
                      : caf::make_error(caf::sec::no_actor_published_at_port);
            else if (!system.assignable(found, interface))
              result = caf::make_error(
                  caf::sec::unexpected_actor_messaging_interface);
            else
              result = actor;
          },
          [&](const caf::error& x) { result = x; });
  return result;
}

/// Asks what every CAF actor that does not block answers by itself.
/// @returns the error that came instead of the answer, if any.
caf::error ask_for_info(caf::actor_system& system, const caf::actor& actor,
                        caf::timespan patience) {
  caf::error result;
  logger_guard guard;
  caf::scoped_actor self{system};
  answer_if_lost(self, actor, no_replica);
  request_within(self, patience, actor, caf::sys_atom_v, caf::get_atom_v,
                 std::string{"info"})
      .receive([](caf::ok_atom, const std::string&,
                  const caf::strong_actor_ptr&, const std::string&) {},
               [&](const caf::error& x) { result = x; });
  return result;
}

/// Why an actor on another node no longer answers: it has exited, or the
/// connection to its node has ended.
caf::error why_gone(const caf::actor& actor) {
  if (!has_exited(actor))
    return caf::make_error(connection_ended);
  auto& gone = *caf::actor_cast<caf::abstract_actor*>(actor);
  if (reason_of_exit(gone) == caf::exit_reason::remote_link_unreachable)
    return caf::make_error(connection_ended);
  return make_error(errc::master_down, "the actor there has exited");
}

/// Why that actor is not heard of, if it is on another node. CAF holds one
/// connection between two nodes, and each side closes any that comes after its
/// first: if two nodes connect to each other at the same moment, each may close
/// the other's first connection. Then both have handles, but no connection:
/// `connection_ended`.
caf::error why_unreached(caf::actor_system& system,
                         const caf::strong_actor_ptr& found,
                         const time_budget& patience) {
  auto actor = caf::actor_cast<caf::actor>(found);
  if (!is_distant(actor))
    return {};
  // A question may be lost while others connect to that node. An actor that
  // answers neither question, such as one that blocks, is taken as it is.
  for (auto time :
       {std::chrono::milliseconds{200}, std::chrono::milliseconds{800}}) {
    auto problem = ask_for_info(system, actor,
                                std::min<caf::timespan>(patience.left(), time));
    if (problem == caf::none)
      return {};
    if (!is_timeout(problem))
      return why_gone(actor);
  }
  return {};
}

/// Like `look_up`; `connection_ended` if the actor is not reached. In that
/// case, of two nodes that connect to each other, one waits longer: when they
/// try again, the other one's connection is the first for both.
caf::expected<caf::strong_actor_ptr>
reach(caf::actor_system& system, std::size_t limit,
      const std::set<std::string>& interface, const std::string& host,
      std::uint16_t port, const time_budget& patience) {
  auto found = look_up(system, limit, interface, host, port, patience.left());
  if (!found)
    return found;
  auto problem = why_unreached(system, *found, patience);
  if (problem == caf::none)
    return found;
  if (problem != connection_ended)
    return make_error(errc::master_down,
                      fmt::format("remote_master: port {} of {}: {}", port,
                                  host, text_of(problem)));
  std::chrono::milliseconds time{system.node() < (*found)->node() ? 1 : 50};
  logger_guard guard;
  caf::scoped_actor self{system};
  self->receive(caf::after(time) >> [] {});
  return problem;
}

} // namespace

caf::expected<caf::strong_actor_ptr>
find_actor(caf::actor_system& system, const std::set<std::string>& interface,
           const std::string& host, std::uint16_t port,
           const connect_options& options) {
  auto limit = limit_at("remote_master", system, host, options.insecure);
  if (!limit)
    return limit.error();
  time_budget patience{options.patience};
  // A node that refuses this one says why and closes the connection; the close
  // may get here first.
  int attempts = system.has_openssl_manager() ? 10 : 1;
  for (;;) {
    forget_tls_failure(port);
    auto found = reach(system, *limit, interface, host, port, patience);
    if (found)
      return found;
    // CAF's next heartbeat ends each connection that is still in its handshake.
    auto cut = found.error() == caf::sec::connection_timeout
               || found.error() == connection_ended;
    if (is_timeout(found.error()) || patience.is_over()
        || code_of(found.error()) || !tls_failure(host, port).empty()
        || (!cut && --attempts == 0))
      return connect_error(host, port, patience, found.error());
  }
}

} // namespace syncnorm::detail
