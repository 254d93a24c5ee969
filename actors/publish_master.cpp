#include "syncnorm/publish_master.hpp"

#include "network_access.hpp"

#include "syncnorm/caf_error.hpp"
#include "syncnorm/detail/caf/logger_guard.hpp"
#include "syncnorm/error.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <system_error>
#include <utility>

namespace syncnorm::detail {

namespace {

/// Returns 0 if a socket can bind to that address, as CAF's would, or the
/// error.
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

/// Why that port cannot be opened, which CAF does not say; empty if it can be
/// by now.
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
    // A name may have several addresses: that one is in use says more than that
    // another is not this machine's.
    if (why == 0 || code == EADDRINUSE)
      why = code;
  }
  return std::generic_category().message(why);
}

caf::error publish_error(const publish_options& options, const caf::error& x) {
  std::string why;
  if (x == caf::sec::cannot_open_port)
    why = why_closed(options);
  return make_error(
      errc::invalid_argument,
      fmt::format("publish_master: port {} of {} cannot be "
                  "opened: {}",
                  options.port,
                  options.address.empty() ? "every address" : options.address,
                  why.empty() ? text_of(x) : why));
}

} // namespace

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
  logger_guard guard;
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

} // namespace syncnorm::detail
