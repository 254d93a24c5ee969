#pragma once

#include "syncnorm/sync_relay.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace syncnorm::train {

/// A relay between the processes of a run.
struct process_relay {
  /// Where it lives: the process of the first replica that it stands for.
  std::size_t process = 0;
  replica_range range;
  /// Position of its parent in the plan; nothing: the masters.
  std::optional<std::size_t> parent;
  /// How many relays are above it.
  std::size_t depth = 0;
};

/// The routes of messages between the processes of a run.
struct process_tree {
  /// Parents come before their children.
  std::vector<process_relay> relays;
  /// For each process, what its replicas register with: the position of a
  /// relay, or nothing: the masters.
  std::vector<std::optional<std::size_t>> followed;

  /// The process that receives what leaves process `i`; nothing: none does, or
  /// the one with the masters does.
  [[nodiscard]] std::optional<std::size_t> above(std::size_t i) const;
};

/// Plans the tree: if there are up to `fan_in` processes, each has one relay
/// for its replicas, or none for a single one, and is next to the masters. If
/// there are more, each group of neighbours has a relay in its first process,
/// and so have groups of groups, as `plan_relays` says of replicas.
/// @param replicas how many each process has, 1 or more; process 0 has the
///                 masters and replica 0.
/// @throws error as `plan_relays`.
[[nodiscard]] process_tree
plan_process_tree(std::span<const std::size_t> replicas, std::int64_t fan_in);

} // namespace syncnorm::train
