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
#include <random>
#include <stdexcept>
#include <tuple>
#include <utility>
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

} // namespace

virtual_hosts::virtual_hosts(link between) : link_{between} {
  for (int host : {0, 1})
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
  for (auto x :
       {end_[0], devices_[0], devices_[1], namespaces_[0], namespaces_[1]})
    ::close(x);
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

void virtual_hosts::cut() noexcept {
  is_cut_ = true;
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
  wire to[2];
  std::vector<char> buffer(65536);
  for (;;) {
    pollfd events[] = {
        {devices_[0], POLLIN, 0}, {devices_[1], POLLIN, 0}, {end_[0], 0, 0}};
    std::ignore = ::poll(events, 3, to[1].wait(to[0].wait(1000)));
    if (events[2].revents != 0)
      return;
    for (int from : {0, 1}) {
      auto n = ::read(devices_[from], buffer.data(), buffer.size());
      for (; n > 0; n = ::read(devices_[from], buffer.data(), buffer.size()))
        if (is_cut_ || is_lost(random))
          ++lost_;
        else
          to[1 - from].packets.push_back(
              {clock::now() + link_.delay,
               {buffer.begin(), buffer.begin() + n}});
    }
    for (int host : {0, 1})
      for (auto& queue = to[host].packets;
           !queue.empty() && queue.front().due <= clock::now();
           queue.pop_front()) {
        const auto& bytes = queue.front().bytes;
        if (!is_cut_ && ::write(devices_[host], bytes.data(), bytes.size()) > 0)
          ++delivered_;
        else
          ++lost_;
      }
  }
}

} // namespace syncnorm::train
