#pragma once

#include "trainer/run/messages.hpp"

namespace syncnorm::train {

/// A configuration that knows the message types.
struct test_config : caf::actor_system_config {
  test_config() {
    detail::add_types<caf::id_block::syncnorm, caf::id_block::syncnorm_train>(
        *this);
  }
};

inline test_config& configuration() {
  detail::init_types<caf::id_block::syncnorm, caf::id_block::syncnorm_train>();
  static test_config result;
  return result;
}

} // namespace syncnorm::train
