#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace syncnorm::train {

/// Two hosts with a network between them, on this machine: two network
/// namespaces, each with a TUN device, and a thread that hands each packet over
/// from one device to the other, later, or not at all. TCP runs over it as over
/// any other link, and has to repeat what is lost.
class virtual_hosts {
public:
  struct link {
    std::chrono::microseconds delay;
    /// Share of the packets that are lost, in either direction.
    double loss = 0;
  };

  /// @throws std::runtime_error where this process may not make namespaces.
  explicit virtual_hosts(link between);

  virtual_hosts(const virtual_hosts&) = delete;
  virtual_hosts& operator=(const virtual_hosts&) = delete;

  ~virtual_hosts();

  /// Calls `f` on host 0 or 1; what it starts lives there.
  void on(int host, const std::function<void()>& f) const;

  [[nodiscard]] static std::string address(int host);

  /// From now on every packet is lost.
  void cut() noexcept;

  /// Packets that came to the other host, and that were lost on the way.
  [[nodiscard]] std::uint64_t delivered() const noexcept;
  [[nodiscard]] std::uint64_t lost() const noexcept;

private:
  void carry();

  link link_;
  int namespaces_[2] = {-1, -1};
  int devices_[2] = {-1, -1};
  int end_[2] = {-1, -1};
  std::atomic<bool> is_cut_{false};
  std::atomic<std::uint64_t> delivered_{0};
  std::atomic<std::uint64_t> lost_{0};
  std::thread carrier_;
};

} // namespace syncnorm::train
