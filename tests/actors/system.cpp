#include "tests/actors/system.hpp"

namespace syncnorm::test {

config::config() {
  detail::add_types<caf::id_block::syncnorm, caf::id_block::syncnorm_test>(
      *this);
  load<caf::io::middleman>();
}

int init_types() {
  detail::init_types<caf::id_block::syncnorm, caf::id_block::syncnorm_test>();
  return 0;
}

} // namespace syncnorm::test
