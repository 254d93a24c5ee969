#include "actors/connect_within.hpp"

#include "syncnorm/detail/caf_compat.hpp"
#include "tests/actors/deaf_listener.hpp"
#include "tests/actors/outcome.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <chrono>
#include <string>

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

namespace {

/// Two addresses of a host, in this order.
class two_addresses {
public:
  template <class First, class Second>
  two_addresses(First& first, Second& second)
      : first_{of(first)},
        second_{of(second)} {
    first_.ai_next = &second_;
  }

  two_addresses(const two_addresses&) = delete;
  two_addresses& operator=(const two_addresses&) = delete;

  [[nodiscard]] const addrinfo& list() const noexcept {
    return first_;
  }

private:
  template <class Address>
  static addrinfo of(Address& x) {
    addrinfo result{};
    result.ai_addr = reinterpret_cast<sockaddr*>(&x);
    result.ai_addrlen = sizeof x;
    result.ai_family = result.ai_addr->sa_family;
    return result;
  }

  addrinfo first_;
  addrinfo second_;
};

/// Of this machine, where nobody listens.
sockaddr_in closed_port() {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(1);
  result.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return result;
}

/// Of a group of machines, to which TCP connects nowhere.
sockaddr_in nowhere() {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(1);
  result.sin_addr.s_addr = htonl(INADDR_ALLHOSTS_GROUP);
  return result;
}

} // namespace

TEST_CASE(
    "of a host's addresses, one that refuses says why nobody answers, and "
    "not one that cannot be reached") {
  auto closed = closed_port();
  auto unreached = nowhere();
  two_addresses host{unreached, closed};
  auto socket = detail::connect_to_any(200ms, host.list());
  REQUIRE_FALSE(socket);
  auto text = to_string(socket.error());
  CHECK_MESSAGE(text.find("Connection refused") != std::string::npos, text);
}

TEST_CASE("of a host's addresses, one that is silent says more than one that "
          "cannot be reached") {
  deaf_listener crowded{0};
  crowded.crowd(4);
  auto unreached = nowhere();
  auto silent = crowded.address();
  two_addresses host{unreached, silent};
  auto socket = detail::connect_to_any(200ms, host.list());
  REQUIRE_FALSE(socket);
  CHECK(socket.error() == caf::sec::connection_timeout);
}

TEST_CASE("of a host's addresses, one that is silent leaves time for the "
          "next") {
  deaf_listener crowded{0};
  crowded.crowd(4);
  deaf_listener open{10};
  auto silent = crowded.address();
  auto there = open.address();
  two_addresses host{silent, there};
  auto socket = detail::connect_to_any(1s, host.list());
  REQUIRE_MESSAGE(socket, why_not(socket));
  ::close(*socket);
}
