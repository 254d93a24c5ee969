#pragma once

#include "syncnorm/sync_relay.hpp"

#include "tests/actors/below.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace syncnorm::test {

/// Which replicas and relays register with which: a master, and relays up to
/// three deep.
class tree_shape {
public:
  /// Empty for the master.
  using place = std::optional<std::size_t>;

  struct relay {
    replica_range range;
    place parent;
  };

  /// A random shape for `replicas` replicas, including the owner, which is
  /// number 0 and leads the master.
  tree_shape(std::mt19937& random, std::int64_t replicas)
      : random_{&random},
        homes_(static_cast<std::size_t>(replicas)) {
    grow({1, replicas - 1}, std::nullopt, 0);
  }

  /// A relay comes before those behind it.
  [[nodiscard]] const std::vector<relay>& relays() const noexcept {
    return relays_;
  }

  [[nodiscard]] std::int64_t replicas() const noexcept {
    return std::ssize(homes_);
  }

  /// Where a replica registers.
  [[nodiscard]] place home(std::int64_t replica) const {
    return homes_[static_cast<std::size_t>(replica)];
  }

  /// Whether `is` holds for any relay on the way from `from` to the master.
  template <class Predicate>
  [[nodiscard]] bool any_above(place from, Predicate is) const {
    for (; from; from = relays_[*from].parent)
      if (is(*from))
        return true;
    return false;
  }

  /// Describes a relay, for readers of a failed check.
  [[nodiscard]] std::string text(std::size_t relay) const {
    const auto& range = relays_[relay].range;
    return "a relay of " + std::to_string(range.count) + " from "
           + std::to_string(range.first) + " on";
  }

private:
  /// Spreads a range over relays of its own and `parent`.
  void grow(replica_range range, place parent, int depth) {
    for (auto i = range.first; i < range.first + range.count;) {
      replica_range some{i, 1};
      if (depth < 3 && below(*random_, 5) < 2) {
        some.count += below(*random_, range.first + range.count - i);
        relays_.push_back({some, parent});
        grow(some, relays_.size() - 1, depth + 1);
      } else {
        homes_[static_cast<std::size_t>(i)] = parent;
      }
      i += some.count;
    }
  }

  std::mt19937* random_;
  std::vector<relay> relays_;
  std::vector<place> homes_;
};

} // namespace syncnorm::test
