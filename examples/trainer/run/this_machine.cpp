#include "trainer/run/this_machine.hpp"

#include <malloc.h>
#include <netdb.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <limits>
#include <memory>

namespace syncnorm::train {

namespace {

using address_list = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// For datagrams: connecting sends nothing, but chooses a route.
address_list look_up(const std::string& host, int family) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* result = nullptr;
  // Any port will do.
  if (::getaddrinfo(host.c_str(), "9", &hints, &result) != 0)
    result = nullptr;
  return {result, &::freeaddrinfo};
}

std::string own_address_to(const addrinfo& there) {
  auto socket = ::socket(there.ai_family, there.ai_socktype, 0);
  if (socket < 0)
    return {};
  sockaddr_storage own{};
  auto* plain = reinterpret_cast<sockaddr*>(&own);
  socklen_t size = sizeof own;
  std::array<char, NI_MAXHOST> text{};
  auto good = ::connect(socket, there.ai_addr, there.ai_addrlen) == 0
              && ::getsockname(socket, plain, &size) == 0
              && ::getnameinfo(plain, size, text.data(), text.size(), nullptr,
                               0, NI_NUMERICHOST)
                     == 0;
  ::close(socket);
  return good ? text.data() : std::string{};
}

} // namespace

void keep_freed_memory() noexcept {
#ifdef __GLIBC__
  // The most that mallopt accepts: half of what a thread's heap may have.
  constexpr int megabytes32 = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, megabytes32);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, megabytes32);
#endif
}

std::vector<int> usable_cores() {
  std::vector<int> result;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return result;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed))
      result.push_back(core);
  return result;
}

std::vector<int> choose_cores(std::size_t replicas,
                              const std::vector<int>& cores) {
  if (replicas == cores.size() && replicas > 1)
    return cores;
  return {};
}

void stay_on(const std::vector<int>& cores) noexcept {
  cpu_set_t some;
  CPU_ZERO(&some);
  for (auto core : cores)
    CPU_SET(core, &some);
  sched_setaffinity(0, sizeof some, &some);
}

bool is_known_host(const std::string& host) {
  return look_up(host, AF_UNSPEC) != nullptr;
}

std::string address_towards(const std::string& host) {
  for (auto family : {AF_INET, AF_INET6}) {
    auto found = look_up(host, family);
    for (const auto* x = found.get(); x != nullptr; x = x->ai_next)
      if (auto own = own_address_to(*x); !own.empty())
        return own;
  }
  return {};
}

} // namespace syncnorm::train
