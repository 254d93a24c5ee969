#include "syncnorm/master_directory.hpp"
#include "syncnorm/network.hpp"

#include "tests/actors/outcome.hpp"
#include "tests/actors/relay_tree.hpp"
#include "tests/actors/served_master.hpp"
#include "tests/actors/two_systems.hpp"
#include "tests/trainer/certificates.hpp"
#include "tests/trainer/child_process.hpp"
#include "tests/trainer/stranger.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>

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
  CHECK(run.worker->finish() == 0);
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

namespace {

std::string port_of(child_process& process) {
  auto line = process.line_that_begins("port ");
  REQUIRE(line.starts_with("port "));
  return line.substr(5, line.find('\n') - 5);
}

/// A master, a relay with replica 1 in the middle, and replica 2 below it.
struct three_processes {
  std::unique_ptr<child_process> server;
  std::unique_ptr<child_process> middle;
  std::unique_ptr<child_process> leaf;

  explicit three_processes(const std::string& rounds)
      : server{two_processes::start("serve", rounds)} {
    middle = two_processes::start("relay", port_of(*server));
    leaf = two_processes::start("below", port_of(*middle));
  }
};

} // namespace

TEST_CASE("a process whose relay another one finds by its name is between that "
          "and the master") {
  three_processes run{"3"};
  CHECK(run.server->finish() == 0);
  CHECK(has(run.server->output(), "owner: sum 6"));
  run.middle->finish();
  CHECK(has(run.middle->output(), "replica 1: sum 6"));
  run.leaf->finish();
  CHECK(has(run.leaf->output(), "replica 2: sum 6"));
  CHECK(has(run.leaf->output(), "replica 2: master_down: "));
}

TEST_CASE("a process in the middle that is killed or stopped is named above, "
          "and missed below") {
  for (auto signal : {SIGKILL, SIGSTOP}) {
    three_processes run{"0"};
    REQUIRE(run.leaf->wait_for("replica 2: sum 6"));
    run.middle->signal(signal);
    CHECK(run.server->finish() == 1);
    auto named = has(run.server->output(), "replicas 1 to 2")
                 || has(run.server->output(), "replicas 1, 2");
    CHECK(named);
    run.leaf->finish();
    INFO(run.leaf->output());
    CHECK(has(run.leaf->output(), "replica 2: master_down: "));
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a directory tells masters by their names, and says which "
                  "there are") {
  auto master = spawn_sync_master<block, block>(system, {.layer = "bn1"},
                                                sum_of_blocks());
  auto other_type = spawn_sync_master<double, double>(
      system, {.layer = "bn2"},
      [](auto) -> std::vector<identified<double>> { return {}; });
  auto directory =
      spawn_master_directory(system, {{"bn1", master}, {"bn2", other_type}});
  auto port = publish_master(system, directory);
  REQUIRE(port);
  config other_cfg;
  caf::actor_system other{other_cfg};
  auto find = [&](const char* name) {
    return remote_master<block, block>(other, "127.0.0.1", *port, name);
  };
  auto found = find("bn1");
  REQUIRE(found);
  CHECK(register_slave_thread<block, block>(other, *found, 1));
  auto text = "invalid_argument: remote_master: port " + std::to_string(*port)
              + " of 127.0.0.1: ";
  auto none = find("bn3");
  REQUIRE_FALSE(none);
  CHECK(describe(none.error())
        == text + "no master is called \"bn3\" here; known: bn1, bn2");
  auto wrong = find("bn2");
  REQUIRE_FALSE(wrong);
  CHECK(describe(wrong.error())
        == text + "\"bn2\" is a master of another type");
  using masters = std::vector<named_master>;
  auto refused = [&](const masters& xs, const char* why) {
    CHECK_THROWS_WITH_AS(std::ignore = spawn_master_directory(system, xs), why,
                         error);
  };
  refused(masters{{"bn1", master}, {"bn1", master}},
          "spawn_master_directory: master \"bn1\": the name comes twice");
  refused(masters{{"", master}},
          "spawn_master_directory: master \"\": expected "
          "a name, got none");
  refused(masters{{"bn1", sync_master_actor<block, block>{}}},
          "spawn_master_directory: master \"bn1\": expected a master, got "
          "none");
  caf::anon_send_exit(directory, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(master, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(other_type, caf::exit_reason::user_shutdown);
}

TEST_CASE_FIXTURE(system_fixture, "publishing and connecting fail in words") {
  auto master = spawn_sync_master<block, block>(system, {.layer = "bn1"},
                                                sum_of_blocks());
  auto open = publish_master(system, master, {.address = "0.0.0.0"});
  REQUIRE_FALSE(open);
  CHECK(describe(open.error())
        == "invalid_argument: publish_master: expected a loopback address, "
           "use_tls, or insecure = true, got \"0.0.0.0\"");
  auto far = remote_master<block, block>(system, "192.0.2.1", 4242);
  REQUIRE_FALSE(far);
  CHECK(describe(far.error())
        == "invalid_argument: remote_master: expected a loopback address, "
           "use_tls, or insecure = true, got \"192.0.2.1\"");
  auto port = publish_master(system, master);
  REQUIRE(port);
  auto again = publish_master(system, master, {.port = *port});
  REQUIRE_FALSE(again);
  auto in_use = "invalid_argument: publish_master: port "
                + std::to_string(*port)
                + " of 127.0.0.1 cannot be opened: Address already in use";
  CHECK(describe(again.error()) == in_use);
  auto none = publish_master(system, sync_master_actor<block, block>{});
  REQUIRE_FALSE(none);
  CHECK(describe(none.error())
        == "invalid_argument: publish_master: expected an actor, got none");
  // What is reused is no port at which somebody listens.
  again = publish_master(system, master, {.port = *port, .reuse = true});
  REQUIRE_FALSE(again);
  CHECK(describe(again.error()) == in_use);
  again = publish_master(system, master,
                         {.port = *port, .address = "", .insecure = true});
  REQUIRE_FALSE(again);
  CHECK(describe(again.error())
        == "invalid_argument: publish_master: port " + std::to_string(*port)
               + " of every address cannot be opened: Address already in use");
  auto open_at = [&](const char* address) {
    auto foreign = publish_master(
        system, master, {.port = 4300, .address = address, .insecure = true});
    REQUIRE_FALSE(foreign);
    return describe(foreign.error());
  };
  CHECK(open_at("192.0.2.1")
        == "invalid_argument: publish_master: port 4300 of 192.0.2.1 cannot be "
           "opened: Cannot assign requested address");
  // Without IPv6 it is the family that this machine lacks.
  auto sixth = open_at("2001:db8::1");
  INFO(sixth);
  CHECK_FALSE(has(sixth, "system_error"));
  config other_cfg;
  caf::actor_system other{other_cfg};
  auto wrong =
      remote_master<float_array, float_array>(other, "127.0.0.1", *port);
  REQUIRE_FALSE(wrong);
  CHECK(describe(wrong.error())
        == "invalid_argument: remote_master: port " + std::to_string(*port)
               + " of 127.0.0.1: the actor there is of another type, or only "
                 "one of the two nodes has registered its message types");
  CHECK(remote_master<block, block>(other, "127.0.0.1", *port));
  caf::actor_system_config cfg2;
  CHECK_THROWS_AS(use_network(cfg2, caf::timespan{0}), error);
  caf::anon_send_exit(master, caf::exit_reason::user_shutdown);
}

TEST_CASE("a port that connections of a node that has ended still hold is "
          "reused if that is asked for, and else is in use") {
  std::optional<train::stranger> stays;
  std::uint16_t port = 0;
  {
    served_master first;
    auto opened = publish_master(first.system, first.master, {.reuse = true});
    REQUIRE(opened);
    port = *opened;
    stays.emplace(port);
    stays->await_bytes();
  }
  // The node has ended the connection: until the other side does, too, the
  // system keeps the port for it.
  served_master next;
  auto held = publish_master(next.system, next.master, {.port = port});
  REQUIRE_FALSE(held);
  CHECK(has(describe(held.error()), "Address already in use"));
  auto again =
      publish_master(next.system, next.master, {.port = port, .reuse = true});
  CHECK_MESSAGE(again, why_not(again));
}

TEST_CASE_FIXTURE(system_fixture,
                  "somebody who takes the connection and says nothing is given "
                  "up after the patience asked for") {
  train::stranger silent{0};
  auto master =
      remote_master<block, block>(system, "127.0.0.1", silent.port(),
                                  {.patience = std::chrono::milliseconds{200}});
  REQUIRE_FALSE(master);
  CHECK(code_of(master.error()) == errc::master_down);
  CHECK(has(describe(master.error()), "nothing heard for 0.2 s"));
}

TEST_CASE("a name is no address of this machine because it looks like one") {
  for (const auto* host : {"127.0.0.1", "127.8.9.1", "::1", "localhost"})
    CHECK(is_loopback(host));
  for (const auto* host : {"127.example.org", "128.0.0.1", "0.0.0.0",
                           "::", "::127.0.0.1", "localhost.example.org", ""})
    CHECK_FALSE(is_loopback(host));
}

namespace {

/// The example with certificates.
struct two_members {
  train::certificates files;
  std::unique_ptr<child_process> server = start("serve", "3", "server");
  std::string port = port_of(*server);

  [[nodiscard]] std::unique_ptr<child_process>
  start(const std::string& mode, const std::string& argument,
        const std::string& member) const {
    std::filesystem::path file{files.file(member)};
    return std::make_unique<child_process>(std::vector<std::string>{
        SYNCNORM_TWO_NODES, mode, argument, file.parent_path().string(),
        file.filename().string()});
  }

  /// The last line of one that joins and fails.
  [[nodiscard]] std::string refusal_of(const std::string& member) const {
    auto process = start("join", port, member);
    CHECK(process->finish() == 1);
    return process->output();
  }

  /// Whether one that joins and fails says `why`. What the other side says may
  /// be lost with the connection that it ends: then once more.
  [[nodiscard]] bool hears(const std::string& member,
                           const std::string& why) const {
    for (auto i = 0; i < 10; ++i)
      if (has(refusal_of(member), why))
        return true;
    return false;
  }
};

} // namespace

TEST_CASE_FIXTURE(two_members,
                  "by TLS members run rounds, and whoever is none is refused "
                  "on both sides, without disturbing them") {
  files.show_expired(static_cast<std::uint16_t>(std::stoi(port)));
  CHECK(hears("abroad/foreign", "the other side says: unknown CA"));
  // Its certificate is made out for the other role.
  CHECK(hears("server", "no trust between this node and port"));
  auto plain = two_processes::start("join", port);
  CHECK(plain->finish() == 1);
  CHECK(has(plain->output(), "master_down: remote_master: no such master"));
  CHECK(has(plain->output(),
            "127.0.0.1: the other side ended the connection in the handshake: "
            "it may want TLS, or speak another version of CAF\n"));
  // They stay until the end: the server ends all the same.
  auto strangers = train::disturb(static_cast<std::uint16_t>(std::stoi(port)));
  auto good = start("join", port, "client");
  CHECK(server->finish() == 0);
  good->finish();
  CHECK(has(good->output(), "replica 2: sum 6"));
  const auto& said = server->output();
  INFO(said);
  CHECK(has(said, "owner: sum 6"));
  for (const auto* why : {"certificate has expired",
                          "self-signed certificate in certificate chain",
                          "unsuitable certificate purpose",
                          "wrong version number", "http request"})
    CHECK(has(said, std::string{"127.0.0.1 is refused: "} + why));
}

TEST_CASE_FIXTURE(two_members, "by TLS, too, a member that is killed is lost, "
                               "and nobody is said to be refused") {
  // The server may end before it has said all.
  for (auto i = 0; i < 3; ++i) {
    auto other = start("serve", "0", "server");
    auto member = start("join", port_of(*other), "client");
    for (auto round = 1; round <= 3; ++round)
      REQUIRE_MESSAGE(member->wait_for("replica 1: sum 6"), member->output());
    member->signal(SIGKILL);
    CHECK(other->finish() == 1);
    INFO(other->output());
    CHECK(has(other->output(), "replicas 1"));
    CHECK_FALSE(has(other->output(), "is refused"));
  }
}

TEST_CASE_FIXTURE(two_members,
                  "by TLS, too, an actor of another type on a node "
                  "that is connected is no matter of trust") {
  init_types();
  network_config cfg{
      node_options{.tls = tls_options{.certificate = files.file("client.pem"),
                                      .key = files.file("client.key"),
                                      .ca = files.file("ca.pem")}}};
  caf::actor_system system{cfg};
  auto at = static_cast<std::uint16_t>(std::stoi(port));
  // CAF makes a connection for each question, and ends it if it has one.
  for (auto i = 0; i < 30; ++i) {
    CHECK(remote_master<double_array, double_array>(system, "127.0.0.1", at));
    auto wrong =
        remote_master<float_array, float_array>(system, "127.0.0.1", at);
    REQUIRE_FALSE(wrong);
    CHECK(text_of(wrong.error())
          == "remote_master: port " + port
                 + " of 127.0.0.1: the actor there is of another type, or only "
                   "one of the two nodes has registered its message types");
  }
}

namespace {

/// Somebody whose certificate has expired serves: `use_tls` would not.
std::unique_ptr<child_process> serve_expired(const train::certificates& files) {
  return std::make_unique<child_process>(std::vector<std::string>{
      "/usr/bin/env", "openssl", "s_server", "-www", "-accept", "127.0.0.1:0",
      "-cert", files.file("expired.pem"), "-key", files.file("expired.key"),
      "-CAfile", files.file("ca.pem"), "-Verify", "1"});
}

/// Fails unless one that joins as "client" does not trust the server that
/// prints its port behind `prefix`.
void require_no_trust(const two_members& members, child_process& server,
                      const std::string& prefix, const std::string& why) {
  auto line = server.line_that_begins(prefix);
  REQUIRE(line.starts_with(prefix));
  auto port = line.substr(prefix.size(), line.find('\n') - prefix.size());
  auto process = members.start("join", port, "client");
  CHECK(process->finish() == 1);
  INFO(process->output());
  CHECK(has(process->output(), "no trust between this node and port"));
  CHECK(has(process->output(), why));
  CHECK_FALSE(has(process->output(), "the other side says"));
  // What it says to the other side may be lost with the connection, but not
  // who it is.
  server.kill(SIGKILL);
  CHECK_FALSE(has(server.output(), "somebody"));
}

} // namespace

TEST_CASE("the example refuses numbers that are none in words") {
  for (const auto& [mode, argument, text] :
       {std::tuple{"join", "99999", "join: PORT: expected 1 to 65535, got "},
        std::tuple{"below", "0", "below: PORT: expected 1 to 65535, got "},
        std::tuple{"serve", "3x",
                   "serve: ROUNDS: expected 0, for no end, or "
                   "more, got "}}) {
    child_process process{{SYNCNORM_TWO_NODES, mode, argument}};
    CHECK(process.line_that_begins("")
          == std::string{text} + "\"" + argument + "\"\n");
    CHECK(process.finish() == 1);
  }
}

TEST_CASE_FIXTURE(two_members, "a server with a certificate that is none of "
                               "ours, or no server's, is not trusted") {
  auto foreign = start("serve", "1", "abroad/foreign");
  require_no_trust(*this, *foreign, "port ",
                   "self-signed certificate in certificate chain");
  auto client = start("serve", "1", "client");
  require_no_trust(*this, *client, "port ", "unsuitable certificate purpose");
  auto expired = serve_expired(files);
  require_no_trust(*this, *expired,
                   "ACCEPT 127.0.0.1:", "certificate has expired");
}

TEST_CASE_FIXTURE(two_members,
                  "what TLS has against one host is not said of another one at "
                  "the same port") {
  init_types();
  auto foreign = start("serve", "1", "abroad/foreign");
  auto line = foreign->line_that_begins("port ");
  REQUIRE(line.starts_with("port "));
  auto at = static_cast<std::uint16_t>(std::stoi(line.substr(5)));
  network_config cfg{
      node_options{.tls = tls_options{.certificate = files.file("client.pem"),
                                      .key = files.file("client.key"),
                                      .ca = files.file("ca.pem")}}};
  caf::actor_system system{cfg};
  auto reason = [&](const char* host) {
    auto found = remote_master<double_array, double_array>(
        system, host, at, {.patience = std::chrono::seconds{1}});
    REQUIRE_FALSE(found);
    return found.error();
  };
  std::atomic<bool> done = false;
  std::thread other{[&] {
    while (!done)
      std::ignore = remote_master<double_array, double_array>(
          system, "127.0.0.1", at, {.patience = std::chrono::seconds{1}});
  }};
  // Nobody listens there.
  for (auto i = 0; i < 20; ++i)
    CHECK(code_of(reason("127.0.0.2")) == errc::master_down);
  done = true;
  other.join();
  CHECK(has(text_of(reason("127.0.0.1")), "no trust between"));
}

TEST_CASE_FIXTURE(two_members,
                  "a node's own certificate that has expired, or that no CA it "
                  "trusts has signed, is refused before anything is opened") {
  auto refusal = [&](const std::string& why, const std::string& member) {
    auto text = "use_tls: " + files.file(member + ".pem")
                + ": expected a certificate that is valid now and signed by a "
                  "CA of "
                + files.file("ca.pem") + ", found " + why + "\n";
    for (const auto* mode : {"serve", "join"}) {
      auto process = start(mode, "1", member);
      REQUIRE(process->line_that_begins("") == text);
      CHECK(process->finish() == 1);
      CHECK(process->output().empty());
    }
  };
  refusal("certificate has expired", "expired");
  refusal("unable to get local issuer certificate", "foreign");
}

TEST_CASE_FIXTURE(two_members,
                  "files of TLS that are none are refused before anything is "
                  "opened") {
  auto process = start("serve", "1", "nobody");
  CHECK(process->finish() == 1);
  CHECK(process->output()
        == "use_tls: " + files.file("nobody.pem")
               + ": expected a usable certificate in PEM format, found No such "
                 "file or directory\n");
}
