#include "bounded_connection.hpp"

#include "bounded_scribe.hpp"
#include "connect_within.hpp"
#include "tcp_scribe.hpp"
#include "tls_scribe.hpp"

#include <caf/io/middleman_actor_impl.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/doorman_impl.hpp>
#include <caf/openssl/manager.hpp>

#include <memory>
#include <utility>

namespace syncnorm::detail {

namespace {

namespace io = caf::io;
using io::network::default_multiplexer;
using io::network::native_socket;

/// Returns a connection over that socket, which it owns from now on; null if
/// TLS has no session for the socket.
/// @param through as for `bounded_scribe`.
io::scribe_ptr make_scribe(const connection_rules& rules,
                           std::shared_ptr<const door> through,
                           default_multiplexer& multiplexer,
                           native_socket socket) {
  std::ignore = io::network::keepalive(socket, true);
  if (!rules.system->has_openssl_manager())
    return caf::make_counted<bounded_scribe<tcp_scribe>>(
        rules, std::move(through), multiplexer, socket);
  // OpenSSL must not wait.
  std::ignore = io::network::nonblocking(socket, true);
  at_door here{through.get()};
  auto session =
      caf::openssl::make_session(*rules.system, socket, through != nullptr);
  if (!session) {
    io::network::close_socket(socket);
    return nullptr;
  }
  return caf::make_counted<bounded_scribe<tls_scribe>>(
      rules, through, multiplexer, socket, std::move(session), through);
}

class bounded_doorman final : public io::network::doorman_impl {
public:
  bounded_doorman(default_multiplexer& multiplexer, native_socket socket,
                  const connection_rules& rules,
                  std::shared_ptr<const door> mine)
      : doorman_impl{multiplexer, socket},
        rules_{rules},
        door_{std::move(mine)} {}

  bool new_connection() override {
    if (detached())
      return false;
    auto& multiplexer = acceptor_.backend();
    auto scribe =
        make_scribe(rules_, door_, multiplexer, acceptor_.accepted_socket());
    if (!scribe)
      return false;
    auto handle = scribe->hdl();
    parent()->add_scribe(std::move(scribe));
    return doorman::new_connection(&multiplexer, handle);
  }

private:
  connection_rules rules_;
  std::shared_ptr<const door> door_;
};

class bounded_middleman final : public io::middleman_actor_impl {
public:
  bounded_middleman(caf::actor_config& config, caf::actor broker,
                    std::size_t limit, caf::timespan patience,
                    std::shared_ptr<const door> opened)
      : middleman_actor_impl{config, std::move(broker)},
        rules_{&system(), limit},
        patience_{patience},
        door_{std::move(opened)} {}

  const char* name() const override {
    return "syncnorm.doorman";
  }

protected:
  caf::expected<io::scribe_ptr> connect(const std::string& host,
                                        std::uint16_t port) override {
    auto socket = connect_within(patience_, host, port);
    if (!socket)
      return std::move(socket.error());
    auto scribe = make_scribe(rules_, nullptr, multiplexer(), *socket);
    if (!scribe)
      return caf::make_error(caf::sec::cannot_connect_to_node);
    return scribe;
  }

  caf::expected<io::doorman_ptr> open(std::uint16_t port, const char* address,
                                      bool reuse) override {
    auto socket = io::network::new_tcp_acceptor_impl(port, address, reuse);
    if (!socket)
      return std::move(socket.error());
    return io::doorman_ptr{caf::make_counted<bounded_doorman>(
        multiplexer(), *socket, rules_, door_)};
  }

private:
  default_multiplexer& multiplexer() {
    return static_cast<default_multiplexer&>(system().middleman().backend());
  }

  connection_rules rules_;
  caf::timespan patience_;
  std::shared_ptr<const door> door_;
};

} // namespace

io::middleman_actor spawn_bounded_doorman(caf::actor_system& system,
                                          std::size_t limit,
                                          caf::timespan patience,
                                          std::shared_ptr<const door> opened) {
  // Connecting and looking up a name block.
  return system.spawn<bounded_middleman, caf::detached>(
      protocol_broker(system), limit, patience, std::move(opened));
}

} // namespace syncnorm::detail
