#include "syncnorm/network.hpp"

#include "syncnorm/error.hpp"

#include <fmt/format.h>

namespace syncnorm {

void use_network(caf::actor_system_config& config, caf::timespan lost_after) {
  if (lost_after < std::chrono::milliseconds{5})
    throw error{errc::invalid_argument,
                fmt::format("use_network: a node must have 5 ms or more until "
                            "it is considered lost, got {} ns",
                            lost_after.count())};
  config.load<caf::io::middleman>();
  detail::set_heartbeats(config, lost_after / 5, lost_after);
  detail::read_where_received(config);
}

} // namespace syncnorm
