// A master on another node that answers nothing, or is gone.

#include "actors/batch_norm_slave.hpp"
#include "syncnorm/sync_relay.hpp"

#include "tests/actors/remote_master.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// A master that takes every request, tells of it, and never answers.
caf::actor spawn_mute_master(caf::actor_system& system, caf::actor witness) {
  return system.spawn([witness = std::move(witness)]() -> caf::behavior {
    auto seen = [witness] { detail::anon_send(witness, caf::ok_atom_v); };
    return {[seen](register_slave_atom, std::int64_t) {
              seen();
              return caf::delegated<slave_ticket>{};
            },
            [seen](run_slave_atom, const round_tag&, const block&) {
              seen();
              return caf::delegated<block>{};
            },
            [seen](run_master_atom, const block&) {
              seen();
              return caf::delegated<block>{};
            },
            [seen](get_metrics_atom) {
              seen();
              return caf::delegated<sync_metrics>{};
            },
            [seen](register_relay_atom, std::int64_t, std::int64_t) {
              seen();
              return caf::delegated<slave_ticket>{};
            }};
  });
}

/// A mute master as an actor of another node has it.
struct mute_master : two_systems {
  caf::scoped_actor witness{system};
  caf::actor mute = spawn_mute_master(system, caf::actor{witness});
  caf::scoped_actor self{other};
  master_type master = connect();

  ~mute_master() {
    caf::anon_send_exit(mute, caf::exit_reason::kill);
  }

private:
  master_type connect() {
    auto port = system.middleman().publish(mute, 0, "127.0.0.1");
    REQUIRE(port);
    auto remote = other.middleman().remote_actor("127.0.0.1", *port);
    REQUIRE(remote);
    return caf::actor_cast<master_type>(*remote);
  }
};

} // namespace

TEST_CASE_FIXTURE(mute_master,
                  "an actor whose master on another node never answers does "
                  "not wait for ever") {
  auto no_answer = [](const auto&) { FAIL("an answer"); };
  auto timed_out = [](const caf::error& e) {
    CHECK(e == caf::sec::request_timeout);
  };
  constexpr std::chrono::milliseconds soon{1};
  register_slave(self, master, 1, soon)
      .receive([&](const slave_ticket& x) { no_answer(x); }, timed_out);
  pipe_type pipe{master, {{1, 1, 1, 1}, soon}};
  pipe.run_slave(self, block{1})
      .receive([&](const block& x) { no_answer(x); }, timed_out);
  run_master(self, master, block{1}, soon)
      .receive([&](const block& x) { no_answer(x); }, timed_out);
  read_metrics(self, master, soon)
      .receive([&](const sync_metrics& x) { no_answer(x); }, timed_out);
}

namespace {

/// All that one actor can ask a master, as two replicas and as the owner, with
/// an hour's patience.
auto ask_all(caf::scoped_actor& self, const master_type& master) {
  constexpr std::chrono::hours patience{1};
  // A deadline from another node may be too long for any clock.
  pipe_type first{master, {{1, 1, 1, 1}, caf::timespan::max()}};
  pipe_type second{master, {{1, 1, 1, 2}, patience}};
  return std::tuple{register_slave(self, master, 3, patience),
                    first.run_slave(self, block{1}),
                    second.run_slave(self, block{2}),
                    run_master(self, master, block{0}, patience),
                    read_metrics(self, master, patience)};
}

/// Receives the answers to all of `requests`, and checks that each tells that
/// the master is down, and who asked.
template <class Requests>
void check_all_told(Requests requests) {
  auto told = [](auto& request, const auto& sample, const char* who) {
    std::move(request).receive(
        [](const std::decay_t<decltype(sample)>&) { FAIL("an answer"); },
        [who](const caf::error& e) {
          CHECK(code_of(e) == errc::master_down);
          CHECK(describe(e).find(who) != std::string::npos);
        });
  };
  told(std::get<0>(requests), slave_ticket{}, "replica 3: the master is down");
  told(std::get<1>(requests), block{}, "replica 1: the master is down");
  told(std::get<2>(requests), block{}, "replica 2: the master is down");
  told(std::get<3>(requests), block{}, "replica 0: the master is down");
  told(std::get<4>(requests), sync_metrics{},
       "master_down: the master is down");
}

} // namespace

TEST_CASE_FIXTURE(mute_master,
                  "an actor whose master on another node is gone is told at "
                  "once, whether it waits for it or asks later") {
  auto waiting = ask_all(self, master);
  for (int n = 0; n < 5; ++n)
    witness->receive([](caf::ok_atom) {});
  caf::anon_send_exit(mute, caf::exit_reason::kill);
  check_all_told(std::move(waiting));
  check_all_told(ask_all(self, master));
}

TEST_CASE_FIXTURE(mute_master,
                  "who asks any actor of another node is told at once that it "
                  "is gone, before or after the request, and waits for a mute "
                  "one as long as it says") {
  auto ask = [&](caf::timespan patience) {
    return request_remote(self, patience, master, get_metrics_atom_v);
  };
  auto answer = [](const sync_metrics&) { FAIL("an answer"); };
  auto gone = [](const caf::error& e) {
    CHECK(code_of(e) == errc::master_down);
  };
  ask(std::chrono::milliseconds{1}).receive(answer, [](const caf::error& e) {
    CHECK(e == caf::sec::request_timeout);
  });
  auto waiting = ask(std::chrono::hours{1});
  for (int n = 0; n < 2; ++n)
    witness->receive([](caf::ok_atom) {});
  caf::anon_send_exit(mute, caf::exit_reason::kill);
  std::move(waiting).receive(answer, gone);
  ask(std::chrono::hours{1}).receive(answer, gone);
}

TEST_CASE_FIXTURE(mute_master,
                  "who has several questions to a master on another node at a "
                  "time is told of each that it is gone") {
  auto first = read_metrics(self, master, std::chrono::hours{1});
  auto second = read_metrics(self, master, std::chrono::hours{1});
  for (int n = 0; n < 2; ++n)
    witness->receive([](caf::ok_atom) {});
  caf::anon_send_exit(mute, caf::exit_reason::kill);
  for (auto* question : {&first, &second})
    std::move(*question).receive(
        [](const sync_metrics&) { FAIL("an answer"); },
        [](const caf::error& e) { CHECK(code_of(e) == errc::master_down); });
}

TEST_CASE_FIXTURE(mute_master,
                  "a relay whose parent was lost while it registered tells who "
                  "asks it later, too, and at once") {
  auto relay = spawn_sync_relay<block, block>(other, master, "bn1", {1, 2},
                                              merge_blocks);
  auto is_told = [](auto request) {
    std::move(request).receive(
        [](const slave_ticket&) { FAIL("an answer"); },
        [](const caf::error& e) { CHECK(code_of(e) == errc::master_down); });
  };
  auto first = register_slave(self, relay, 1);
  witness->receive([](caf::ok_atom) {});
  caf::anon_send_exit(mute, caf::exit_reason::kill);
  is_told(std::move(first));
  // The relay's own request would be answered after a minute.
  for (int n = 0; n < 3; ++n)
    is_told(detail::request_within(self, std::chrono::seconds{30}, relay,
                                   register_slave_atom_v, std::int64_t{2}));
  caf::anon_send_exit(relay, caf::exit_reason::user_shutdown);
}

TEST_CASE_FIXTURE(mute_master, "who has asked a master on another node and "
                               "ended leaves nothing at its proxy") {
  std::optional<detail::lost_answer::predecessor> left;
  std::vector<caf::message_id> answers;
  {
    caf::scoped_actor passer_by{other};
    left.emplace(detail::lost_answer::predecessor{{passer_by->ctrl()->id(), 1},
                                                  answers});
    pipe_type pipe{master, {{1, 1, 1, 1}, std::chrono::hours{1}}};
    std::ignore = pipe.run_slave(passer_by, block{1});
  }
  CHECK(caf::actor_cast<caf::abstract_actor*>(master)->detach(*left) == 0);
}

TEST_CASE_FIXTURE(mute_master, "who outlives a master on another node keeps "
                               "nothing of it") {
  caf::scoped_actor survivor{other};
  pipe_type pipe{master, {{1, 1, 1, 1}, std::chrono::hours{1}}};
  auto answer = pipe.run_slave(survivor, block{1});
  witness->receive([](caf::ok_atom) {});
  caf::anon_send_exit(mute, caf::exit_reason::kill);
  std::move(answer).receive([](const block&) { FAIL("an answer"); },
                            [](const caf::error&) {});
  detail::lost_answer::counterpart left{
      caf::actor_cast<caf::actor_control_block*>(master),
      {survivor->ctrl()->id(), 1}};
  CHECK(caf::actor_cast<caf::abstract_actor*>(survivor)->detach(left) == 0);
}

TEST_CASE_FIXTURE(mute_master,
                  "a replica that registers again while it waits for a master "
                  "on another node is told of both that it is gone") {
  caf::scoped_actor listener{other};
  other.spawn([&](caf::event_based_actor* replica) {
    auto tell = [replica, to = caf::actor{listener}](const caf::error& e) {
      detail::send(replica, to, code_of(e) == errc::master_down);
    };
    auto pipe = std::make_shared<pipe_type>(
        master, slave_ticket{{1, 1, 1, 1}, std::chrono::hours{1}});
    pipe->run_slave(replica, block{1})
        .then([pipe](const block&) { FAIL("an answer"); }, tell);
    register_slave(replica, master, 1, std::chrono::hours{1})
        .then([](const slave_ticket&) { FAIL("an answer"); }, tell);
  });
  for (int n = 0; n < 2; ++n)
    witness->receive([](caf::ok_atom) {});
  caf::anon_send_exit(mute, caf::exit_reason::kill);
  for (int n = 0; n < 2; ++n)
    listener->receive([](bool is_down) { CHECK(is_down); });
}

TEST_CASE_FIXTURE(mute_master, "whoever asks a slave actor what its master on "
                               "another node has counted is told when that is "
                               "gone") {
  batch_norm_options options;
  options.name = "bn1";
  options.channels = 1;
  auto state = std::make_shared<future_result<bool>>();
  detail::slave_role role;
  role.master = caf::actor_cast<batch_norm_master_actor>(master);
  role.copy_id = 1;
  role.registered = std::make_shared<future_writer<bool>>(state);
  role.ended = std::make_shared<future_writer<bool>>(
      std::make_shared<future_result<bool>>());
  auto slave = other.spawn<detail::batch_norm_slave>(
      std::make_shared<batch_norm_replica>(options), std::move(role));
  auto counts = detail::request(self, slave, get_metrics_atom_v);
  for (int n = 0; n < 2; ++n)
    witness->receive([](caf::ok_atom) {});
  caf::anon_send_exit(mute, caf::exit_reason::kill);
  std::move(counts).receive(
      [](const sync_metrics&) { FAIL("an answer"); },
      [](const caf::error& e) { CHECK(code_of(e) == errc::master_down); });
  caf::anon_send_exit(slave, caf::exit_reason::kill);
}

namespace {

struct hasty_config : network_config {
  hasty_config() {
    add_config_options(custom_options_);
    set("syncnorm.deadline", caf::timespan{1});
  }
};

} // namespace

TEST_CASE_FIXTURE(two_systems,
                  "an owner on another node waits for as long as its "
                  "configuration's deadline, if it does not say how long") {
  auto silent = system.spawn([]() -> caf::behavior {
    return {
        [](run_master_atom, const block&) { return caf::delegated<block>{}; }};
  });
  auto port = system.middleman().publish(silent, 0, "127.0.0.1");
  REQUIRE(port);
  hasty_config hasty_cfg;
  caf::actor_system hasty{hasty_cfg};
  auto remote = hasty.middleman().remote_actor("127.0.0.1", *port);
  REQUIRE(remote);
  auto master = caf::actor_cast<master_type>(*remote);
  CHECK(detail::owner_timeout(master)
        == caf::timespan{1} + std::chrono::seconds{1});
  caf::scoped_actor self{hasty};
  run_master(self, master, block{1})
      .receive(
          [](const block&) { FAIL("an answer"); },
          [](const caf::error& e) { CHECK(e == caf::sec::request_timeout); });
  caf::anon_send_exit(silent, caf::exit_reason::kill);
}
