#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace syncnorm::train {

/// Hosts with a network between them, on this machine: network namespaces, each
/// with a TUN device, and a thread that passes each packet on to its receiver's
/// device, later, or not at all. TCP runs over it as over any other network,
/// and has to resend what is lost.
class virtual_hosts {
public:
  struct link {
    std::chrono::microseconds delay;
    /// Share of the packets that are lost, in either direction.
    double loss = 0;
  };

  /// The largest number of hosts.
  static constexpr int max_hosts = 8;

  /// @throws std::runtime_error where this process may not make namespaces.
  explicit virtual_hosts(link between, int count = 2);

  virtual_hosts(const virtual_hosts&) = delete;
  virtual_hosts& operator=(const virtual_hosts&) = delete;

  ~virtual_hosts();

  /// Calls `f` on a host, counted from 0; what it starts lives there.
  void on(int host, const std::function<void()>& f) const;

  [[nodiscard]] static std::string address(int host);

  /// From now on every packet between these two is lost.
  void cut(int one, int other) noexcept;

  /// Packets that reached another host, and packets that were lost on the way.
  [[nodiscard]] std::uint64_t delivered() const noexcept;
  [[nodiscard]] std::uint64_t lost() const noexcept;

private:
  void carry();

  link link_;
  int count_;
  std::array<int, max_hosts> namespaces_{};
  std::array<int, max_hosts> devices_{};
  int end_[2] = {-1, -1};
  std::array<std::array<std::atomic<bool>, max_hosts>, max_hosts> cuts_{};
  std::atomic<std::uint64_t> delivered_{0};
  std::atomic<std::uint64_t> lost_{0};
  std::thread carrier_;
};

} // namespace syncnorm::train
