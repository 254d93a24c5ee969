#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace syncnorm::nn {

/// How copies of a model synchronize their layers.
struct SynchronizeOptions {
  /// How long a round may take from its first message to its last. If unset: as
  /// configured in the actor system (`syncnorm.deadline`), else 60 s.
  std::optional<std::chrono::nanoseconds> deadline = std::nullopt;
  /// How many copies share statistics: 2 makes groups of copies 0 and 1, 2 and
  /// 3, and so on, the last group with what is left; 0: all copies. An error
  /// that names replicas counts them within their group; it names the group's
  /// copies beside the layer: "b1 (copies 2 to 3) ... replica 1" is copy 3.
  std::int64_t group_size = 0;
  /// Put before each layer's path in error texts.
  std::string prefix;

  /// Whether all options are the same.
  friend bool operator==(const SynchronizeOptions&,
                         const SynchronizeOptions&) = default;
};

} // namespace syncnorm::nn
