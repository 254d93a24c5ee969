#pragma once

#include "syncnorm/sync_master.hpp"

#include "tests/actors/two_systems.hpp"
#include "tests/trainer/certificates.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::test {

using block = double_array;

/// A master that the other system can reach.
struct served_master : two_systems {
  using two_systems::two_systems;

  caf::scoped_actor listener{system};
  sync_master_actor<block, block> master = spawn_sync_master<block, block>(
      system, {.layer = "sum"}, [](std::span<identified<block>> xs) {
        std::vector<identified<block>> replies;
        for (const auto& x : xs)
          replies.push_back({x.identifier, xs.back().message});
        return replies;
      });

  ~served_master() {
    caf::anon_send_exit(master, caf::exit_reason::user_shutdown);
  }

  std::uint16_t publish() {
    publish_options options;
    options.on_refusal = caf::actor{listener};
    auto port = publish_master(system, master, options);
    REQUIRE(port);
    return *port;
  }

  sync_master_actor<block, block> connect(std::uint16_t port) {
    auto master = remote_master<block, block>(other, "127.0.0.1", port);
    REQUIRE(master);
    return *master;
  }

  /// The next line about a refused connection.
  std::string refusal() {
    std::string result;
    listener->receive([&](std::string& line) { result = std::move(line); });
    return result;
  }
};

/// The certificates that both nodes show.
struct with_certificates {
  train::certificates files;

  [[nodiscard]] tls_options node() const {
    return {.certificate = files.file("node.pem"),
            .key = files.file("node.key"),
            .ca = files.file("ca.pem")};
  }
};

struct master_by_tls : with_certificates, served_master {
  /// No node counts as lost merely for silence while a test runs, and no
  /// heartbeat wakes a connection.
  master_by_tls()
      : served_master{{.tls = node(), .lost_after = std::chrono::minutes{10}}} {
  }
};

} // namespace syncnorm::test
