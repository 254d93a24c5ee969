// Looking for masters on other nodes.

#include "syncnorm/master_directory.hpp"

#include "tests/actors/remote_master.hpp"

#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

TEST_CASE("a system without a network says so, and throws nothing") {
  caf::actor_system_config plain;
  init_types();
  detail::add_types<caf::id_block::syncnorm, caf::id_block::syncnorm_test>(
      plain);
  caf::actor_system system{plain};
  auto alone =
      spawn_sync_master<block, block>(system, {.layer = "bn1"}, add_blocks);
  auto port = publish_master(system, alone);
  REQUIRE_FALSE(port);
  CHECK(describe(port.error())
            .starts_with("invalid_argument: publish_master: expected a system "
                         "whose configuration "
                         "use_network has prepared"));
  auto found = remote_master<block, block>(system, "127.0.0.1", 1);
  REQUIRE_FALSE(found);
  CHECK(code_of(found.error()) == errc::invalid_argument);
  CHECK(text_of(found.error()).starts_with("remote_master: expected a system"));
}

TEST_CASE_FIXTURE(two_nodes, "a directory names twenty masters at most, and of "
                             "a name what fits into a text") {
  const std::string long_name(100, 'a');
  const std::string shown(80, 'a');
  std::vector<named_master> names{{long_name, master}};
  std::string known = shown;
  for (char last = 'b'; last <= 'u'; ++last) {
    names.emplace_back(std::string{"bn"} + last, master);
    if (last != 'u')
      known += std::string{", bn"} + last;
  }
  auto directory = spawn_master_directory(system, names);
  auto port = publish_master(system, directory);
  REQUIRE(port);
  auto none =
      remote_master<block, block>(other, "127.0.0.1", *port, long_name + "a");
  REQUIRE_FALSE(none);
  CHECK(describe(none.error())
        == "invalid_argument: remote_master: port " + std::to_string(*port)
               + " of 127.0.0.1: no master is called \"" + shown
               + "\" here; known: " + known + ", ...");
  caf::anon_send_exit(directory, caf::exit_reason::user_shutdown);
}

TEST_CASE_FIXTURE(system_fixture,
                  "a directory that has exited keeps no master, "
                  "although somebody holds it") {
  std::promise<void> gone;
  auto lives = std::shared_ptr<void>{nullptr, [&](void*) { gone.set_value(); }};
  auto directory = spawn_master_directory(
      system, {{"bn1", spawn_sync_master<block, block>(
                           system, {.layer = "bn1"},
                           [lives = std::move(lives)](auto blocks) {
                             return add_blocks(blocks);
                           })}});
  caf::anon_send_exit(directory, caf::exit_reason::user_shutdown);
  CHECK(gone.get_future().wait_for(std::chrono::minutes{1})
        == std::future_status::ready);
}

namespace {

/// Outlives the others, who hold handles of its actors.
struct third_node {
  int third_types = init_types();
  network_config third_cfg;
  caf::actor_system third{third_cfg};
};

struct three_nodes : third_node, two_nodes {};

} // namespace

TEST_CASE_FIXTURE(three_nodes, "a directory that names no actor, or one of "
                               "another node than its own, is not believed") {
  auto elsewhere =
      spawn_sync_master<block, block>(third, {.layer = "bn1"}, add_blocks);
  for (const auto& named :
       {named_master{"bn1", elsewhere},
        named_master{"bn1", sync_master_actor<block, block>{}}}) {
    auto directory = system.spawn([named]() -> master_directory::behavior_type {
      return {[named](const std::string&)
                  -> caf::result<caf::strong_actor_ptr, std::set<std::string>> {
        return {named.actor(), named.interface()};
      }};
    });
    auto port = publish_master(system, directory);
    REQUIRE(port);
    auto found = remote_master<block, block>(other, "127.0.0.1", *port, "bn1");
    REQUIRE_FALSE(found);
    CHECK(describe(found.error())
          == "malformed_message: remote_master: port " + std::to_string(*port)
                 + " of 127.0.0.1: the directory names no actor of its node");
    caf::anon_send_exit(directory, caf::exit_reason::user_shutdown);
  }
  caf::anon_send_exit(elsewhere, caf::exit_reason::user_shutdown);
}

TEST_CASE_FIXTURE(two_nodes, "a directory has masters of its own node only") {
  auto distant = connect(other, publish());
  CHECK_THROWS_WITH_AS(
      std::ignore = spawn_master_directory(other, {{"bn1", distant}}),
      "spawn_master_directory: master \"bn1\": expected a master of this "
      "node, got another node's",
      error);
}

TEST_CASE_FIXTURE(two_nodes,
                  "who looks for a master at its own node's port gets "
                  "that master itself") {
  CHECK(connect(system, publish()) == master);
}

TEST_CASE_FIXTURE(two_nodes, "who looks for a master that has exited is told "
                             "so, and does not try again") {
  auto port = publish();
  caf::scoped_actor self{system};
  caf::anon_send_exit(master, caf::exit_reason::user_shutdown);
  self->wait_for(master);
  for (int i = 0; i < 2; ++i) {
    auto found = remote_master<block, block>(
        other, "127.0.0.1", port, {.patience = std::chrono::seconds{5}});
    REQUIRE_FALSE(found);
    CHECK(code_of(found.error()) == errc::master_down);
    CHECK(text_of(found.error()).ends_with("the actor there has exited"));
  }
}

TEST_CASE_FIXTURE(two_nodes,
                  "a directory that does not answer is given up when "
                  "the patience is over, in words") {
  auto mute = system.spawn([]() -> master_directory::behavior_type {
    return {[](const std::string&) {
      return caf::delegated<caf::strong_actor_ptr, std::set<std::string>>{};
    }};
  });
  auto port = publish_master(system, mute);
  REQUIRE(port);
  auto found =
      remote_master<block, block>(other, "127.0.0.1", *port, "bn1",
                                  {.patience = std::chrono::milliseconds{200}});
  REQUIRE_FALSE(found);
  CHECK(code_of(found.error()) == errc::master_down);
  CHECK(text_of(found.error()).ends_with("nothing heard for 0.2 s"));
  caf::anon_send_exit(mute, caf::exit_reason::user_shutdown);
}

TEST_CASE_FIXTURE(two_nodes, "who has all the patience there is gets an answer "
                             "too") {
  constexpr auto ever = caf::timespan::max();
  auto directory = spawn_master_directory(system, {{"bn1", master}});
  auto port = publish_master(system, directory);
  REQUIRE(port);
  auto remote = remote_master<block, block>(other, "127.0.0.1", *port, "bn1",
                                            {.patience = ever});
  CHECK_MESSAGE(remote, why_not(remote));
  if (remote) {
    caf::scoped_actor self{other};
    register_slave(self, *remote, 1, ever)
        .receive([](const slave_ticket&) {},
                 [](const caf::error& e) { FAIL_CHECK(describe(e)); });
  }
  caf::anon_send_exit(directory, caf::exit_reason::user_shutdown);
}
