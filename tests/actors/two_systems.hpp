#pragma once

#include "syncnorm/network.hpp"

#include "tests/actors/system.hpp"

#include <chrono>
#include <cstdint>
#include <optional>

namespace syncnorm::test {

/// How a node is reached.
struct node_options {
  std::int64_t max_message = std::int64_t{1} << 30U;
  std::optional<tls_options> tls = {};
  caf::timespan lost_after = std::chrono::seconds{10};
};

struct network_config : config {
  network_config() : network_config{node_options{}} {}

  explicit network_config(const node_options& options) {
    use_network(*this, options.lost_after);
    caf::put(content, "syncnorm.max-message", options.max_message);
    if (options.tls)
      use_tls(*this, *options.tls);
  }
};

/// Two actor systems, each of which is another node to the other.
struct two_systems {
  two_systems() = default;

  /// `max_message` applies only to the first one.
  explicit two_systems(const node_options& options)
      : cfg{options},
        other_cfg{node_options{.tls = options.tls,
                               .lost_after = options.lost_after}} {}

  int types = init_types();
  network_config cfg;
  network_config other_cfg;
  caf::actor_system system{cfg};
  caf::actor_system other{other_cfg};
};

} // namespace syncnorm::test
