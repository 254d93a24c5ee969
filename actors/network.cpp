#include "syncnorm/network.hpp"

#include "syncnorm/error.hpp"
#include "syncnorm/message_types.hpp"

#include <fmt/format.h>

namespace syncnorm {

void use_network(caf::actor_system_config& config, caf::timespan lost_after) {
  if (lost_after < std::chrono::milliseconds{5})
    throw error{errc::invalid_argument,
                fmt::format("use_network: a node must have 5 ms or more until "
                            "it is taken for lost, got {} ns",
                            lost_after.count())};
  config.load<caf::io::middleman>();
  detail::set_heartbeats(config, lost_after / 5, lost_after);
}

namespace detail {

caf::error check_address(const std::string& address, bool insecure) {
  if (insecure || address.starts_with("127.") || address == "::1")
    return {};
  return make_error(errc::invalid_argument,
                    fmt::format("publish_master: expected a loopback address, "
                                "or publish_options::insecure, got \"{}\"",
                                address));
}

caf::error publish_error(const std::string& address, std::uint16_t port,
                         const caf::error& x) {
  return make_error(errc::invalid_argument,
                    fmt::format("publish_master: port {} of {} cannot be "
                                "opened: {}",
                                port, address, describe(x)));
}

caf::error connect_error(const std::string& host, std::uint16_t port,
                         const caf::error& x) {
  return make_error(errc::master_down,
                    fmt::format("remote_master: no such master answers at port "
                                "{} of {}: {}",
                                port, host, describe(x)));
}

} // namespace detail

} // namespace syncnorm
