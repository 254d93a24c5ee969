// A port at which another version of CAF answers.

#include "syncnorm/sync_master.hpp"

#include "tests/actors/logged.hpp"
#include "tests/actors/outcome.hpp"
#include "tests/actors/two_systems.hpp"

#include <arpa/inet.h>
#include <caf/io/basp/version.hpp>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

using block = double_array;

/// The beginning of a node's part in the handshake, of that version of the
/// protocol, whose content means something else here.
std::string strange_handshake(std::uint64_t version) {
  constexpr std::uint32_t size = 64;
  std::string result(32 + size, '\0');
  result[7] = static_cast<char>(size);
  for (unsigned i = 0; i < 8; ++i)
    result[8 + i] = static_cast<char>(version >> (56U - 8U * i));
  result.replace(32, size, size, '\xff');
  return result;
}

/// Says the same to everybody who connects.
class foreign_node {
public:
  explicit foreign_node(std::string words)
      : words_{std::move(words)},
        listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    auto* plain = reinterpret_cast<sockaddr*>(&address_);
    REQUIRE(::bind(listener_, plain, size) == 0);
    REQUIRE(::listen(listener_, 10) == 0);
    ::getsockname(listener_, plain, &size);
    speaker_ = std::thread{[this] { speak(); }};
  }

  foreign_node(const foreign_node&) = delete;
  foreign_node& operator=(const foreign_node&) = delete;

  ~foreign_node() {
    // Wakes the one that waits.
    ::shutdown(listener_, SHUT_RDWR);
    speaker_.join();
    ::close(listener_);
  }

  [[nodiscard]] std::uint16_t port() const {
    return ntohs(address_.sin_port);
  }

private:
  void speak() const {
    for (int other; (other = ::accept(listener_, nullptr, nullptr)) >= 0;) {
      (void) ::send(other, words_.data(), words_.size(), MSG_NOSIGNAL);
      // Until the other side has ended the connection.
      for (char c; ::recv(other, &c, 1, 0) > 0;)
        continue;
      ::close(other);
    }
  }

  std::string words_;
  int listener_;
  sockaddr_in address_{};
  std::thread speaker_;
};

} // namespace

TEST_CASE("a node that speaks another version of CAF is taken for one, whether "
          "it says so or cannot be read") {
  two_systems x;
  for (auto other : {0U, 1U}) {
    foreign_node node{strange_handshake(caf::io::basp::version + other)};
    auto found =
        remote_master<block, block>(x.system, "127.0.0.1", node.port());
    REQUIRE_FALSE(found);
    CHECK(code_of(found.error()) == errc::master_down);
    auto text = describe(found.error());
    CHECK_MESSAGE(text.ends_with("it may speak another version of CAF"), text);
  }
}

TEST_CASE("a node that this one has connected to and refuses is logged") {
  foreign_node node{strange_handshake(caf::io::basp::version + 1)};
  auto text = logged<network_config>("warning", [&](caf::actor_system& here) {
    CHECK_FALSE(remote_master<block, block>(here, "127.0.0.1", node.port()));
  });
  CHECK_MESSAGE(
      text.find("127.0.0.1 is refused: what it sent is no message of CAF's")
          != std::string::npos,
      text);
}
