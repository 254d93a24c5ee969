#include "trainer/virtual_hosts.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <exception>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <tuple>
#include <vector>

namespace syncnorm::train {

namespace {

using clock = std::chrono::steady_clock;

void require(bool good, const char* what) {
  if (!good)
    throw std::runtime_error{std::string{what} + ": " + std::strerror(errno)};
}

ifreq request_for(const char* name) {
  ifreq result{};
  std::strncpy(result.ifr_name, name, IFNAMSIZ - 1);
  return result;
}

void set_address(int socket, unsigned long what, const std::string& text) {
  auto request = request_for("link0");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, text.c_str(), &address.sin_addr);
  std::memcpy(&request.ifr_addr, &address, sizeof address);
  require(::ioctl(socket, what, &request) == 0, "an address of a TUN device");
}

void bring_up(int socket, const char* name) {
  auto request = request_for(name);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  require(::ioctl(socket, SIOCSIFFLAGS, &request) == 0, "a device's start");
}

/// A TUN device in this thread's namespace, with that address.
int open_device(const std::string& address) {
  auto device = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  require(device >= 0, "/dev/net/tun");
  auto request = request_for("link0");
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  require(::ioctl(device, TUNSETIFF, &request) == 0, "a TUN device");
  auto socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  set_address(socket, SIOCSIFADDR, address);
  set_address(socket, SIOCSIFNETMASK, "255.255.255.0");
  bring_up(socket, "link0");
  bring_up(socket, "lo");
  ::close(socket);
  return device;
}

/// Runs `f` on a thread of its own, and throws what it throws.
void apart(const std::function<void()>& f) {
  std::exception_ptr problem;
  std::thread{[&] {
    try {
      f();
    } catch (...) {
      problem = std::current_exception();
    }
  }}.join();
  if (problem)
    std::rethrow_exception(problem);
}

/// Packets on their way to one host.
struct wire {
  struct packet {
    clock::time_point due;
    int from;
    std::vector<char> bytes;
  };

  std::deque<packet> packets;

  /// Milliseconds until the first one is due, at most `limit`.
  [[nodiscard]] int wait(int limit) const {
    if (packets.empty())
      return limit;
    auto left = std::chrono::ceil<std::chrono::milliseconds>(packets.front().due
                                                             - clock::now());
    return std::clamp(static_cast<int>(left.count()), 0, limit);
  }
};

/// Whom a packet of IPv4 is for, if it is one of the hosts.
std::optional<int> receiver_of(std::span<const char> packet, int count) {
  constexpr std::size_t header = 20;
  if (packet.size() < header || packet[0] >> 4 != 4)
    return std::nullopt;
  auto host = static_cast<unsigned char>(packet[19]) - 1;
  return host >= 0 && host < count ? std::optional{host} : std::nullopt;
}

} // namespace

virtual_hosts::virtual_hosts(link between, int count)
    : link_{between},
      count_{count} {
  for (int host = 0; host < count; ++host)
    apart([this, host] {
      require(::unshare(CLONE_NEWNET) == 0, "a network namespace");
      namespaces_[host] =
          ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
      require(namespaces_[host] >= 0, "a network namespace");
      devices_[host] = open_device(address(host));
    });
  require(::pipe2(end_, O_CLOEXEC) == 0, "a pipe");
  carrier_ = std::thread{[this] { carry(); }};
}

virtual_hosts::~virtual_hosts() {
  ::close(end_[1]);
  carrier_.join();
  ::close(end_[0]);
  for (int host = 0; host < count_; ++host) {
    ::close(devices_[host]);
    ::close(namespaces_[host]);
  }
}

void virtual_hosts::on(int host, const std::function<void()>& f) const {
  apart([&] {
    require(::setns(namespaces_[host], CLONE_NEWNET) == 0, "a host");
    f();
  });
}

std::string virtual_hosts::address(int host) {
  return "10.77.0." + std::to_string(host + 1);
}

void virtual_hosts::cut(int one, int other) noexcept {
  cuts_[one][other] = true;
  cuts_[other][one] = true;
}

std::uint64_t virtual_hosts::delivered() const noexcept {
  return delivered_;
}

std::uint64_t virtual_hosts::lost() const noexcept {
  return lost_;
}

void virtual_hosts::carry() {
  std::mt19937 random{1};
  std::bernoulli_distribution is_lost{link_.loss};
  std::vector<wire> to(count_);
  std::vector<char> buffer(65536);
  std::vector<pollfd> events(count_ + 1, {end_[0], 0, 0});
  for (int host = 0; host < count_; ++host)
    events[host] = {devices_[host], POLLIN, 0};
  for (;;) {
    auto left = 1000;
    for (const auto& x : to)
      left = x.wait(left);
    std::ignore = ::poll(events.data(), events.size(), left);
    if (events.back().revents != 0)
      return;
    for (int from = 0; from < count_; ++from) {
      auto n = ::read(devices_[from], buffer.data(), buffer.size());
      for (; n > 0; n = ::read(devices_[from], buffer.data(), buffer.size())) {
        auto receiver = receiver_of({buffer.data(), std::size_t(n)}, count_);
        if (!receiver || cuts_[from][*receiver] || is_lost(random))
          ++lost_;
        else
          to[*receiver].packets.push_back(
              {clock::now() + link_.delay,
               from,
               {buffer.begin(), buffer.begin() + n}});
      }
    }
    for (int host = 0; host < count_; ++host)
      for (auto& queue = to[host].packets;
           !queue.empty() && queue.front().due <= clock::now();
           queue.pop_front()) {
        const auto& [due, from, bytes] = queue.front();
        if (!cuts_[from][host]
            && ::write(devices_[host], bytes.data(), bytes.size()) > 0)
          ++delivered_;
        else
          ++lost_;
      }
  }
}

} // namespace syncnorm::train
