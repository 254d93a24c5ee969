#pragma once

#include "syncnorm/network.hpp"

#include "tests/actors/system.hpp"

#include <cstdint>

namespace syncnorm::test {

struct network_config : config {
  network_config() {
    use_network(*this);
  }

  explicit network_config(std::int64_t max_message) : network_config{} {
    caf::put(content, "syncnorm.max-message", max_message);
  }
};

/// Two actor systems, of which each is another node to the other one.
struct two_systems {
  two_systems() = default;

  /// The first takes messages of so many bytes from the other one.
  explicit two_systems(std::int64_t max_message) : cfg{max_message} {}

  int types = init_types();
  network_config cfg;
  network_config other_cfg;
  caf::actor_system system{cfg};
  caf::actor_system other{other_cfg};
};

} // namespace syncnorm::test
