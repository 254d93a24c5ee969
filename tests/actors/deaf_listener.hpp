#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

namespace syncnorm::test {

/// A port of this machine at which nobody accepts connections.
class deaf_listener {
public:
  /// @param waiting how many connections the system accepts by itself.
  explicit deaf_listener(int waiting)
      : listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    REQUIRE(::bind(listener_, plain(), size) == 0);
    REQUIRE(::listen(listener_, waiting) == 0);
    ::getsockname(listener_, plain(), &size);
  }

  deaf_listener(const deaf_listener&) = delete;
  deaf_listener& operator=(const deaf_listener&) = delete;

  ~deaf_listener() {
    for (auto x : others_)
      ::close(x);
    ::close(listener_);
  }

  /// Connects `times` times, without waiting for any of the connections.
  void crowd(int times) {
    while (times-- > 0) {
      others_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      (void) ::connect(others_.back(), plain(), sizeof address_);
    }
  }

  [[nodiscard]] std::uint16_t port() const {
    return ntohs(address_.sin_port);
  }

  [[nodiscard]] const sockaddr_in& address() const noexcept {
    return address_;
  }

private:
  sockaddr* plain() {
    return reinterpret_cast<sockaddr*>(&address_);
  }

  int listener_;
  sockaddr_in address_{};
  std::vector<int> others_;
};

} // namespace syncnorm::test
