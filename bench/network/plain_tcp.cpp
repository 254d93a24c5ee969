#include "bench/network/plain_tcp.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncnorm::bench {

namespace {

struct header {
  std::uint64_t elements = 0;
  std::uint64_t want_sum = 0;
};

void require(bool good, const char* what) {
  if (!good)
    throw std::runtime_error{std::string{"bench/network: "} + what};
}

template <class T>
std::span<std::byte> bytes_of(T& x) {
  return std::as_writable_bytes(std::span{&x, 1});
}

} // namespace

std::pair<int, int> connect_plainly() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  auto listener = ::socket(AF_INET, SOCK_STREAM, 0);
  auto one = ::socket(AF_INET, SOCK_STREAM, 0);
  require(::bind(listener, plain, size) == 0 && ::listen(listener, 1) == 0
              && ::getsockname(listener, plain, &size) == 0
              && ::connect(one, plain, size) == 0,
          "no TCP connection on 127.0.0.1");
  auto other = ::accept(listener, nullptr, nullptr);
  require(other >= 0, "no TCP connection on 127.0.0.1");
  ::close(listener);
  int yes = 1;
  for (auto x : {one, other})
    ::setsockopt(x, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return {one, other};
}

void write_all(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    auto n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    require(n > 0, "a plain connection ended");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void read_all(int socket, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    auto n = ::recv(socket, bytes.data(), bytes.size(), 0);
    require(n > 0, "a plain connection ended");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

double send_plainly(int socket, std::span<const float> values, bool want_sum) {
  header about{values.size(), want_sum ? 1U : 0U};
  write_all(socket, bytes_of(about));
  write_all(socket, std::as_bytes(values));
  double answer = 0;
  read_all(socket, bytes_of(answer));
  return answer;
}

void answer_plainly(int socket) try {
  std::vector<float> values;
  for (;;) {
    header about;
    read_all(socket, bytes_of(about));
    values.resize(about.elements);
    read_all(socket, std::as_writable_bytes(std::span{values}));
    double answer = values.back();
    if (about.want_sum != 0)
      answer = std::accumulate(values.begin(), values.end(), 0.0);
    write_all(socket, bytes_of(answer));
  }
} catch (const std::runtime_error&) {
  // The other side has closed the connection.
}

} // namespace syncnorm::bench
