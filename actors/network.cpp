#include "syncnorm/network.hpp"

#include "bounded_connection.hpp"
#include "door.hpp"
#include "time_budget.hpp"
#include "tls_watch.hpp"

#include "syncnorm/config.hpp"
#include "syncnorm/detail/answer_if_lost.hpp"
#include "syncnorm/detail/caf/logger_guard.hpp"
#include "syncnorm/detail/is_distant.hpp"
#include "syncnorm/detail/stand_in.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/message_types.hpp"

#include <arpa/inet.h>
#include <caf/openssl/manager.hpp>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <system_error>
#include <utility>

namespace syncnorm {

namespace {

/// Opens a port, or connects, for the system; ends with this object.
class doorman {
public:
  doorman(caf::actor_system& system, std::size_t limit, caf::timespan patience,
          std::shared_ptr<const detail::door> opened = nullptr)
      : actor_{detail::spawn_bounded_doorman(system, limit, patience,
                                             std::move(opened))} {}

  doorman(const doorman&) = delete;
  doorman& operator=(const doorman&) = delete;

  ~doorman() {
    caf::anon_send_exit(actor_, caf::exit_reason::kill);
  }

  [[nodiscard]] const caf::io::middleman_actor& actor() const noexcept {
    return actor_;
  }

private:
  caf::io::middleman_actor actor_;
};

/// After the handshake.
constexpr auto connection_ended = caf::sec::remote_linking_failed;

/// Why there was no answer, in words for what CAF only has a name for.
std::string silence_text(const detail::time_budget& patience,
                         const caf::error& x) {
  if (detail::is_timeout(x) || x == caf::sec::connection_timeout)
    return patience.text();
  if (x == caf::sec::disconnect_during_handshake)
    return "the other side ended the connection in the handshake: it may want "
           "TLS, or speak another version of CAF";
  if (x == connection_ended)
    return "the connection ended";
  return text_of(x);
}

caf::error connect_error(const std::string& host, std::uint16_t port,
                         const detail::time_budget& patience,
                         const caf::error& x) {
  if (auto why = detail::tls_failure(host, port); !why.empty())
    return make_error(errc::invalid_argument,
                      fmt::format("remote_master: no trust between this node "
                                  "and port {} of {}: {}",
                                  port, host, why));
  if (x == caf::sec::unexpected_actor_messaging_interface)
    return make_error(
        errc::invalid_argument,
        fmt::format("remote_master: port {} of {}: the actor there "
                    "is of another type",
                    port, host));
  // In words already.
  if (code_of(x))
    return x;
  return make_error(errc::master_down,
                    fmt::format("remote_master: no such master answers at port "
                                "{} of {}: {}",
                                port, host, silence_text(patience, x)));
}

/// Returns 0 if a socket takes that address, as CAF's would, or the error.
int bind_once(const addrinfo& address, bool reuse) {
  auto socket = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0)
    return errno;
  int on = reuse ? 1 : 0;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  auto code =
      ::bind(socket, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  ::close(socket);
  return code;
}

/// Why that port cannot be opened, which CAF does not tell, or nothing if by
/// now it can.
std::string why_closed(const publish_options& options) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const auto* host =
      options.address.empty() ? nullptr : options.address.c_str();
  auto port = std::to_string(options.port);
  if (auto code = ::getaddrinfo(host, port.c_str(), &hints, &first); code != 0)
    return ::gai_strerror(code);
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> all{first, ::freeaddrinfo};
  int why = 0;
  for (const auto* x = first; x != nullptr; x = x->ai_next) {
    auto code = bind_once(*x, options.reuse);
    if (code == 0)
      return {};
    // A name may have several: that one is taken says more than that another is
    // not this machine's.
    if (why == 0 || code == EADDRINUSE)
      why = code;
  }
  return std::generic_category().message(why);
}

caf::error publish_error(const publish_options& options, const caf::error& x) {
  std::string why;
  if (x == caf::sec::cannot_open_port)
    why = why_closed(options);
  return make_error(errc::invalid_argument,
                    fmt::format("publish_master: port {} of {} cannot be "
                                "opened: {}",
                                options.port, options.address,
                                why.empty() ? text_of(x) : why));
}

/// Nodes are told apart by their hosts and their processes' numbers.
caf::error same_node_error(const std::string& host, std::uint16_t port) {
  return make_error(
      errc::invalid_argument,
      fmt::format("remote_master: port {} of {}: expected another process, got "
                  "one of this one's host and number, as containers may have, "
                  "which CAF takes for this one",
                  port, host));
}

/// Asks once.
/// @param limit  bytes of a message, at most.
caf::expected<caf::strong_actor_ptr>
look_up(caf::actor_system& system, std::size_t limit,
        const std::set<std::string>& interface, const std::string& host,
        std::uint16_t port, caf::timespan patience) {
  caf::expected<caf::strong_actor_ptr> result{caf::sec::runtime_error};
  detail::logger_guard guard;
  caf::scoped_actor self{system};
  detail::request_within(self, patience,
                         doorman{system, limit, patience}.actor(),
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

/// What every actor of CAF's that does not block answers by itself.
/// @returns what came instead of the answer, if so.
caf::error ask_for_info(caf::actor_system& system, const caf::actor& actor,
                        caf::timespan patience) {
  caf::error result;
  detail::logger_guard guard;
  caf::scoped_actor self{system};
  detail::answer_if_lost(self, actor, detail::no_replica);
  detail::request_within(self, patience, actor, caf::sys_atom_v,
                         caf::get_atom_v, std::string{"info"})
      .receive([](caf::ok_atom, const std::string&,
                  const caf::strong_actor_ptr&, const std::string&) {},
               [&](const caf::error& x) { result = x; });
  return result;
}

/// Why an actor of another node answers nothing any more: it has exited, or the
/// connection to its node has ended.
caf::error why_gone(const caf::actor& actor) {
  if (!detail::has_exited(actor))
    return caf::make_error(connection_ended);
  auto& gone = *caf::actor_cast<caf::abstract_actor*>(actor);
  if (detail::reason_of_exit(gone) == caf::exit_reason::remote_link_unreachable)
    return caf::make_error(connection_ended);
  return make_error(errc::master_down, "the actor there has exited");
}

/// Why that actor is not heard of, if it is on another node. CAF holds one
/// connection between two nodes, and each side closes what comes after its
/// first one: of two nodes that connect to each other at the same moment, each
/// may close the one that is the other's first. Both have handles then, and no
/// connection: `connection_ended`.
caf::error why_unreached(caf::actor_system& system,
                         const caf::strong_actor_ptr& found,
                         const detail::time_budget& patience) {
  auto actor = caf::actor_cast<caf::actor>(found);
  if (!detail::is_distant(actor))
    return {};
  // A question may be lost while others connect to that node. An actor that
  // answers neither, as one that blocks, is taken as it is.
  for (auto time :
       {std::chrono::milliseconds{200}, std::chrono::milliseconds{800}}) {
    auto problem = ask_for_info(system, actor,
                                std::min<caf::timespan>(patience.left(), time));
    if (problem == caf::none)
      return {};
    if (!detail::is_timeout(problem))
      return why_gone(actor);
  }
  return {};
}

/// As `look_up`; `connection_ended` if the actor is not reached. Of two nodes
/// that connect to each other one has waited longer then: the connection of the
/// other one is the first of both when they try again.
caf::expected<caf::strong_actor_ptr>
reach(caf::actor_system& system, std::size_t limit,
      const std::set<std::string>& interface, const std::string& host,
      std::uint16_t port, const detail::time_budget& patience) {
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
  detail::logger_guard guard;
  caf::scoped_actor self{system};
  self->receive(caf::after(time) >> [] {});
  return problem;
}

/// The most bytes of a message, or what is wrong with the system, the address
/// or the configuration.
caf::expected<std::size_t> limit_at(const char* function,
                                    caf::actor_system& system,
                                    const std::string& address, bool insecure) {
  if (!system.has_middleman())
    return make_error(errc::invalid_argument,
                      fmt::format("{}: expected a system whose configuration "
                                  "use_network has prepared, got one without "
                                  "CAF's middleman",
                                  function));
  auto refusal = detail::check_address(function, address,
                                       system.has_openssl_manager(), insecure);
  if (refusal != caf::none)
    return refusal;
  try {
    auto limit = read_defaults(system.config()).max_message;
    return static_cast<std::size_t>(limit);
  } catch (const error& x) {
    return to_caf_error(x);
  }
}

} // namespace

void use_network(caf::actor_system_config& config, caf::timespan lost_after) {
  if (lost_after < std::chrono::milliseconds{5})
    throw error{errc::invalid_argument,
                fmt::format("use_network: a node must have 5 ms or more until "
                            "it is considered lost, got {} ns",
                            lost_after.count())};
  config.load<caf::io::middleman>();
  detail::set_heartbeats(config, lost_after / 5, lost_after);
  detail::read_where_received(config);
}

bool is_loopback(const std::string& host) {
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1)
    return ntohl(v4.s_addr) >> 24U == 127;
  in6_addr v6{};
  if (::inet_pton(AF_INET6, host.c_str(), &v6) == 1)
    return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

namespace detail {

caf::error check_address(const char* function, const std::string& address,
                         bool has_tls, bool insecure) {
  if (has_tls || insecure || is_loopback(address))
    return {};
  return make_error(errc::invalid_argument,
                    fmt::format("{}: expected a loopback address, use_tls, or "
                                "insecure = true, got \"{}\"",
                                function, address));
}

caf::expected<std::uint16_t> publish_actor(caf::actor_system& system,
                                           const caf::strong_actor_ptr& actor,
                                           std::set<std::string> interface,
                                           const publish_options& options) {
  if (!actor)
    return make_error(errc::invalid_argument,
                      "publish_master: expected an actor, got none");
  auto limit =
      limit_at("publish_master", system, options.address, options.insecure);
  if (!limit)
    return limit.error();
  // Local, but a name may have to be looked up.
  constexpr auto patience = std::chrono::minutes{1};
  caf::expected<std::uint16_t> result{caf::sec::runtime_error};
  detail::logger_guard guard;
  caf::scoped_actor self{system};
  auto opened = std::make_shared<door>(system, options.on_refusal);
  request_within(self, patience,
                 doorman{system, *limit, patience, opened}.actor(),
                 caf::publish_atom_v, options.port, actor, std::move(interface),
                 options.address, options.reuse)
      .receive(
          [&](std::uint16_t port) { result = port; },
          [&](const caf::error& x) { result = publish_error(options, x); });
  return result;
}

caf::expected<caf::strong_actor_ptr>
find_actor(caf::actor_system& system, const std::set<std::string>& interface,
           const std::string& host, std::uint16_t port,
           const connect_options& options) {
  auto limit = limit_at("remote_master", system, host, options.insecure);
  if (!limit)
    return limit.error();
  time_budget patience{options.patience};
  // A node that refuses this one says why and closes the connection, which may
  // get here first.
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

} // namespace detail

} // namespace syncnorm
