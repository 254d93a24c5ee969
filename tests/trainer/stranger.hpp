#pragma once

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::train {

/// A connection to 127.0.0.1 or, with port 0, a listener on a free port. Child
/// processes do not inherit it.
class stranger {
public:
  explicit stranger(std::uint16_t port)
      : socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    auto code = port == 0 ? ::bind(socket_, plain, size) | ::listen(socket_, 1)
                          : ::connect(socket_, plain, size);
    REQUIRE(code == 0);
    ::getsockname(socket_, plain, &size);
    port_ = ntohs(address.sin_port);
  }

  stranger(const stranger&) = delete;
  stranger& operator=(const stranger&) = delete;

  ~stranger() {
    if (other_ >= 0)
      ::close(other_);
    ::close(socket_);
  }

  void send(const std::string& bytes) const {
    // The other side may have closed it already.
    (void) ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  /// Waits until the other side sends something or ends the connection.
  void await_bytes() const {
    char first = 0;
    (void) ::recv(socket_, &first, 1, 0);
  }

  /// Waits until somebody connects to the listener.
  void accept() {
    other_ = ::accept(socket_, nullptr, nullptr);
  }

  /// Ends the accepted connection.
  void hang_up() {
    ::close(std::exchange(other_, -1));
  }

  [[nodiscard]] std::uint16_t port() const {
    return port_;
  }

private:
  int socket_;
  int other_ = -1;
  std::uint16_t port_ = 0;
};

inline std::uint16_t port_of(const std::string& where) {
  return static_cast<std::uint16_t>(
      std::stoi(where.substr(where.rfind(':') + 1)));
}

/// The header of a client's handshake, for either line of CAF, that announces
/// `bytes` bytes.
inline std::string header_of(std::uint32_t bytes) {
  std::string header(32, '\0');
  header[0] = 1;
  for (std::size_t i = 0; i < 4; ++i)
    header[4 + i] = static_cast<char>(bytes >> (24U - 8U * i));
  return header;
}

/// Sends garbage, half messages and those of another protocol to `port`, from
/// strangers that stay as long as the returned objects.
inline std::vector<std::unique_ptr<stranger>> disturb(std::uint16_t port) {
  std::mt19937 random{port};
  std::vector<std::unique_ptr<stranger>> result;
  for (std::size_t size : {0U, 1U, 5U, 39U, 40U, 41U, 4000U}) {
    std::string bytes(size, '\0');
    for (auto& x : bytes)
      x = static_cast<char>(random());
    result.push_back(std::make_unique<stranger>(port));
    result.back()->send(bytes);
  }
  result.push_back(std::make_unique<stranger>(port));
  result.back()->send("GET / HTTP/1.1\r\n\r\n");
  result.push_back(std::make_unique<stranger>(port));
  result.back()->send(header_of(1U << 30U) + "not that much");
  // The first half of a TLS handshake: a header that promises 512 bytes.
  result.push_back(std::make_unique<stranger>(port));
  result.back()->send(std::string{"\x16\x03\x01\x02\x00\x01\x00\x01", 8});
  return result;
}

} // namespace syncnorm::train
