#pragma once

#include <caf/all.hpp>

#include <functional>

namespace syncnorm::detail {

[[nodiscard]] inline const caf::actor_control_block*
block_of(const caf::actor_addr& x) {
  return caf::actor_cast<caf::actor_control_block*>(x);
}

/// Whether both are the same actor. By CAF's own comparison, of numbers and
/// nodes, actors of two systems in one process can be equal: without a
/// middleman no system has a node of its own.
[[nodiscard]] inline bool is_same_actor(const caf::actor_addr& a,
                                        const caf::actor_addr& b) {
  return block_of(a) == block_of(b);
}

/// Orders addresses in the same sense.
struct actor_order {
  bool operator()(const caf::actor_addr& a, const caf::actor_addr& b) const {
    return std::less<>{}(block_of(a), block_of(b));
  }
};

} // namespace syncnorm::detail
