#pragma once

#include "syncnorm/config.hpp"
#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/sync_metrics.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace syncnorm::detail {

/// Counts and logs what happens at one master. Only `completed` is called in
/// each round: it adds to a few numbers of its own and, on CAF 1.x, of the
/// metric registry.
class round_monitor {
public:
  /// @throws error as `read_defaults`.
  round_monitor(caf::actor_system& system, const std::string& layer);

  /// A round is complete, `waited` after its first message.
  void completed(caf::timespan waited) {
    ++metrics_.rounds;
    metrics_.waited += waited;
    instruments_.completed(waited);
    ++metrics_.waits[bucket_of(waited)];
  }

  /// A round has failed.
  void failed(const caf::error& reason);

  /// Rounds go on without somebody.
  void went_on(const caf::error& reason);

  /// A slave was registered.
  void registered(const std::string& where, std::int64_t identifier,
                  std::uint64_t generation, std::size_t slaves);

  /// A generation has begun.
  void began(std::uint64_t generation);

  /// The master ends.
  void ended(const std::string& where);

  [[nodiscard]] const sync_metrics& metrics() const noexcept {
    return metrics_;
  }

private:
  void count(const caf::error& reason);

  static std::size_t bucket_of(caf::timespan waited) noexcept {
    auto seconds = std::chrono::duration<double>(waited).count();
    std::size_t i = 0;
    while (i < sync_metrics::wait_bounds.size()
           && seconds > sync_metrics::wait_bounds[i])
      ++i;
    return i;
  }

  [[nodiscard]] bool logs(log_level level) const noexcept {
    return level <= level_;
  }

  caf::actor_system* system_;
  log_level level_;
  sync_metrics metrics_;
  round_instruments instruments_;
};

} // namespace syncnorm::detail
