#include "connect_within.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <system_error>
#include <utility>

namespace syncnorm::detail {

namespace {

using steady = std::chrono::steady_clock;
using address_list = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

/// A socket that is closed unless it is released.
class new_socket {
public:
  explicit new_socket(int family)
      : value_{
          ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)} {}

  new_socket(const new_socket&) = delete;
  new_socket& operator=(const new_socket&) = delete;

  ~new_socket() {
    if (value_ >= 0)
      ::close(value_);
  }

  [[nodiscard]] int get() const noexcept {
    return value_;
  }

  int release() noexcept {
    return std::exchange(value_, -1);
  }

private:
  int value_;
};

/// Waits until the socket can be written to. Returns 0, or the error.
int await_writable(int socket, steady::time_point until) {
  pollfd events{socket, POLLOUT, 0};
  for (;;) {
    auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - steady::now());
    if (left.count() <= 0)
      return ETIMEDOUT;
    constexpr auto most = std::chrono::milliseconds{std::chrono::hours{1}};
    auto n = ::poll(&events, 1, static_cast<int>(std::min(left, most).count()));
    if (n > 0)
      return 0;
    if (n < 0 && errno != EINTR)
      return errno;
  }
}

/// Returns 0 if the socket is connected by then, or the error.
int connect_until(int socket, const addrinfo& address,
                  steady::time_point until) {
  if (::connect(socket, address.ai_addr, address.ai_addrlen) == 0)
    return 0;
  if (errno != EINPROGRESS)
    return errno;
  if (auto code = await_writable(socket, until); code != 0)
    return code;
  int code = 0;
  socklen_t size = sizeof code;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size);
  return code;
}

caf::error connect_failure(const std::string& why) {
  return caf::make_error(caf::sec::cannot_connect_to_node, why);
}

caf::error connect_failure(int code) {
  if (code == ETIMEDOUT)
    return caf::sec::connection_timeout;
  return connect_failure(std::generic_category().message(code));
}

caf::expected<address_list> resolve(const std::string& host,
                                    std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  auto service = std::to_string(port);
  auto code = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &first);
  if (code != 0)
    return connect_failure(::gai_strerror(code));
  return address_list{first, ::freeaddrinfo};
}

/// How much the error of one address says about its host: that this machine
/// cannot reach it at all says least.
int weight_of(int code) {
  if (code == ECONNREFUSED)
    return 2;
  return code == ETIMEDOUT ? 1 : 0;
}

} // namespace

caf::expected<caf::io::network::native_socket>
connect_within(caf::timespan patience, const std::string& host,
               std::uint16_t port) {
  auto until = steady::now() + patience;
  auto found = resolve(host, port);
  if (!found)
    return std::move(found.error());
  return connect_to_any(until - steady::now(), **found);
}

caf::expected<caf::io::network::native_socket>
connect_to_any(caf::timespan patience, const addrinfo& addresses) {
  auto until = steady::now() + patience;
  auto left = 0;
  for (const auto* x = &addresses; x != nullptr; x = x->ai_next)
    ++left;
  auto why = 0;
  for (const auto* x = &addresses; x != nullptr; x = x->ai_next) {
    auto now = steady::now();
    auto share = (until - now) / left--;
    new_socket socket{x->ai_family};
    auto code =
        socket.get() < 0 ? errno : connect_until(socket.get(), *x, now + share);
    if (code == 0)
      return socket.release();
    if (why == 0 || weight_of(code) > weight_of(why))
      why = code;
  }
  return connect_failure(why);
}

} // namespace syncnorm::detail
