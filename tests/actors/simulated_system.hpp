#pragma once

#include "tests/actors/simulation.hpp"
#include "tests/actors/system.hpp"

namespace syncnorm::test {

struct simulated_config {
  int types = init_types();
  caf::actor_system_config cfg;

  simulated_config() {
    detail::add_types<caf::id_block::syncnorm, caf::id_block::syncnorm_test>(
        cfg);
  }
};

/// A simulation with the message types of these tests.
struct simulated_system : private simulated_config, simulation {
  simulated_system() : simulation{cfg} {}
};

} // namespace syncnorm::test
