#pragma once

#include "syncnorm/sync_master.hpp"

#include "tests/actors/relay_tree.hpp"
#include "tests/actors/two_systems.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace syncnorm::test {

using master_type = sync_master_actor<block, block>;
using pipe_type = slave_pipe<block, block>;

/// Adds the messages in the order of their identifiers: in a different order
/// the sum has different bits.
inline std::vector<identified<block>>
add_blocks(std::span<identified<block>> xs) {
  std::vector<double> sum(xs[0].message.begin(), xs[0].message.end());
  for (const auto& x : xs.subspan(1))
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += x.message[i];
  block total{std::move(sum)};
  std::vector<identified<block>> replies;
  for (const auto& x : xs)
    replies.push_back({x.identifier, total});
  return replies;
}

inline pipe_type register_in(caf::actor_system& system,
                             const master_type& master,
                             std::int64_t identifier) {
  auto pipe = register_slave_thread<block, block>(system, master, identifier);
  REQUIRE(pipe);
  return std::move(*pipe);
}

inline master_type connect(caf::actor_system& system, std::uint16_t port) {
  auto master = system.middleman().remote_actor<master_type>("127.0.0.1", port);
  REQUIRE(master);
  return *master;
}

/// A master in one actor system, for actors of the other.
struct two_nodes : two_systems {
  master_type master = spawn_sync_master<block, block>(
      system, {.layer = "bn1", .deadline = std::chrono::seconds{20}},
      add_blocks);

  std::uint16_t publish() {
    auto port = system.middleman().publish(master, 0, "127.0.0.1");
    REQUIRE(port);
    return *port;
  }

  ~two_nodes() {
    caf::anon_send_exit(master, caf::exit_reason::user_shutdown);
  }
};

} // namespace syncnorm::test
