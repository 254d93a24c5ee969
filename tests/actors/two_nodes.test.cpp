#include "syncnorm/network.hpp"

#include "tests/actors/relay_tree.hpp"
#include "tests/trainer/child_process.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <memory>
#include <string>

using namespace syncnorm;
using namespace syncnorm::test;
using train::child_process;

namespace {

/// The example's two processes: a master with its owner, and two replicas
/// behind a relay.
struct two_processes {
  std::unique_ptr<child_process> server;
  std::unique_ptr<child_process> worker;

  explicit two_processes(const std::string& rounds)
      : server{start("serve", rounds)} {
    auto line = server->line_that_begins("port ");
    REQUIRE(line.starts_with("port "));
    worker = start("join", line.substr(5, line.find('\n') - 5));
  }

  static std::unique_ptr<child_process> start(const std::string& mode,
                                              const std::string& argument) {
    return std::make_unique<child_process>(
        std::vector<std::string>{SYNCNORM_TWO_NODES, mode, argument});
  }
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("two processes run rounds, and the one that stays learns that the "
          "other has gone") {
  two_processes run{"3"};
  CHECK(run.server->finish() == 0);
  CHECK(has(run.server->output(), "owner: sum 6"));
  run.worker->finish();
  CHECK(has(run.worker->output(), "replica 1: sum 6"));
  CHECK(has(run.worker->output(), "replica 2: sum 6"));
  CHECK(has(run.worker->output(), "replica 2: master_down: layer sum"));
}

TEST_CASE("a process that is killed or stopped in a round is named by the "
          "replicas that it held") {
  for (auto signal : {SIGKILL, SIGSTOP}) {
    two_processes run{"0"};
    REQUIRE(run.worker->wait_for("replica 1: sum 6"));
    run.worker->signal(signal);
    CHECK(run.server->finish() == 1);
    INFO(run.server->output().substr(run.server->output().size() > 300
                                         ? run.server->output().size() - 300
                                         : 0));
    CHECK(has(run.server->output(), "layer sum, round"));
    auto named = has(run.server->output(), "replicas 1 to 2")
                 || has(run.server->output(), "replicas 1, 2");
    CHECK(named);
  }
}

TEST_CASE("replicas whose master's process is killed or stopped say so") {
  for (auto signal : {SIGKILL, SIGSTOP}) {
    two_processes run{"0"};
    REQUIRE(run.worker->wait_for("replica 1: sum 6"));
    run.server->signal(signal);
    run.worker->finish();
    for (const auto* name : {"replica 1: ", "replica 2: "}) {
      auto said =
          has(run.worker->output(), std::string{name} + "master_down: layer")
          || has(run.worker->output(),
                 std::string{name} + "deadline_exceeded: layer");
      CHECK(said);
    }
  }
}

TEST_CASE_FIXTURE(system_fixture, "publishing and connecting fail in words") {
  auto master = spawn_sync_master<block, block>(system, {.layer = "bn1"},
                                                sum_of_blocks());
  auto open = publish_master(system, master, {.address = "0.0.0.0"});
  REQUIRE_FALSE(open);
  CHECK(describe(open.error())
        == "invalid_argument: publish_master: expected a loopback address, or "
           "publish_options::insecure, got \"0.0.0.0\"");
  auto port = publish_master(system, master);
  REQUIRE(port);
  auto again = publish_master(system, master, {.port = *port});
  REQUIRE_FALSE(again);
  CHECK(has(describe(again.error()),
            "port " + std::to_string(*port) + " of 127.0.0.1 cannot be"));
  config other_cfg;
  caf::actor_system other{other_cfg};
  auto wrong = remote_master<double, double>(other, "127.0.0.1", *port);
  REQUIRE_FALSE(wrong);
  CHECK(code_of(wrong.error()) == errc::master_down);
  CHECK(remote_master<block, block>(other, "127.0.0.1", *port));
  caf::actor_system_config cfg2;
  CHECK_THROWS_AS(use_network(cfg2, caf::timespan{0}), error);
  caf::anon_send_exit(master, caf::exit_reason::user_shutdown);
}
