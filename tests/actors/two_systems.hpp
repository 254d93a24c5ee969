#pragma once

#include "syncnorm/network.hpp"

#include "tests/actors/system.hpp"

namespace syncnorm::test {

struct network_config : config {
  network_config() {
    use_network(*this);
  }
};

/// Two actor systems, of which each is another node to the other one.
struct two_systems {
  int types = init_types();
  network_config cfg;
  network_config other_cfg;
  caf::actor_system system{cfg};
  caf::actor_system other{other_cfg};
};

} // namespace syncnorm::test
