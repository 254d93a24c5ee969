#include "actors/batch_norm_slave.hpp"
#include "syncnorm/master_directory.hpp"

#include "tests/actors/outcome.hpp"
#include "tests/actors/relay_tree.hpp"
#include "tests/actors/two_systems.hpp"

#include <doctest/doctest.h>
#include <linux/tcp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <barrier>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

using master_type = sync_master_actor<block, block>;
using pipe_type = slave_pipe<block, block>;

/// Adds the messages in the order of their identifiers: in another order the
/// sum has other bits.
std::vector<identified<block>> add_blocks(std::span<identified<block>> xs) {
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

block special_block(std::int64_t identifier, int round) {
  std::vector<double> values;
  for (int i = 0; i < 50; ++i)
    values.push_back(
        std::sin(static_cast<double>(identifier * 1000 + round * 50 + i))
        * std::pow(10.0, i % 17));
  values.push_back(std::numeric_limits<double>::denorm_min());
  values.push_back(identifier == 1 ? INFINITY : 1.0);
  values.push_back(identifier == 2 ? NAN : 1.0);
  return block{std::move(values)};
}

std::vector<std::uint64_t> bits_of(const block& x) {
  std::vector<std::uint64_t> bits;
  for (auto value : x)
    bits.push_back(std::bit_cast<std::uint64_t>(value));
  return bits;
}

constexpr int rounds = 50;

/// Rounds of a master in `home` with slave 1 in `first` and slave 2 in
/// `second`; returns the bits of all replies.
std::vector<std::uint64_t> run_rounds(caf::actor_system& home, pipe_type first,
                                      pipe_type second,
                                      const master_type& master) {
  std::vector<std::uint64_t> bits;
  auto slave = [](pipe_type& pipe, std::vector<std::uint64_t>* all) {
    for (int round = 0; round < rounds; ++round) {
      auto reply = pipe.run_slave(special_block(pipe.identifier(), round));
      REQUIRE(reply);
      auto some = bits_of(*reply);
      all->insert(all->end(), some.begin(), some.end());
    }
  };
  std::vector<std::uint64_t> of_first;
  std::vector<std::uint64_t> of_second;
  std::thread one{[&] { slave(first, &of_first); }};
  std::thread two{[&] { slave(second, &of_second); }};
  caf::scoped_actor self{home};
  for (int round = 0; round < rounds; ++round)
    run_master(self, master, special_block(0, round))
        .receive(
            [&](const block& reply) {
              auto some = bits_of(reply);
              bits.insert(bits.end(), some.begin(), some.end());
            },
            [](const caf::error& e) { FAIL(describe(e)); });
  one.join();
  two.join();
  CHECK(of_first == bits);
  CHECK(of_second == bits);
  return bits;
}

pipe_type register_in(caf::actor_system& system, const master_type& master,
                      std::int64_t identifier) {
  auto pipe = register_slave_thread<block, block>(system, master, identifier);
  REQUIRE(pipe);
  return std::move(*pipe);
}

master_type connect(caf::actor_system& system, std::uint16_t port) {
  auto master = system.middleman().remote_actor<master_type>("127.0.0.1", port);
  REQUIRE(master);
  return *master;
}

struct hasty_config : network_config {
  hasty_config() {
    add_config_options(custom_options_);
    set("syncnorm.deadline", caf::timespan{1});
  }
};

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

} // namespace

TEST_CASE_FIXTURE(two_nodes,
                  "two actor systems run rounds with the same bits as one") {
  auto alone = run_rounds(system, register_in(system, master, 1),
                          register_in(system, master, 2), master);
  auto remote = connect(other, publish());
  auto apart = run_rounds(system, register_in(other, remote, 1),
                          register_in(system, master, 2), master);
  CHECK(alone == apart);
}

namespace {

/// Rounds of a master that a message from another node completes each.
struct completed_from_afar : two_systems {
  std::mutex guard;
  std::set<std::thread::id> threads;

  void note_thread() {
    std::scoped_lock lock{guard};
    threads.insert(std::this_thread::get_id());
  }

  /// Returns whether the network's thread is among those that completed one.
  template <class Callback>
  bool by_network_thread(const Callback& callback) {
    auto master = spawn_sync_master<block, block>(
        system, {.layer = "bn1", .deadline = std::chrono::seconds{20}},
        callback);
    auto port = system.middleman().publish(master, 0, "127.0.0.1");
    REQUIRE(port);
    auto remote = connect(other, *port);
    auto pipe = register_in(other, remote, 1);
    caf::scoped_actor owner{system};
    for (int round = 0; round < 20; ++round) {
      auto waiting = run_master(owner, master, block{1});
      // Behind the owner's message, so that this one is there.
      detail::request(owner, master, nr_slaves_atom_v)
          .receive([](std::uint64_t) {},
                   [](caf::error& e) { FAIL(describe(e)); });
      auto reply = pipe.run_slave(block{2});
      REQUIRE(reply);
      CHECK(*reply == block{3});
      std::move(waiting).receive([](const block&) {},
                                 [](caf::error& e) { FAIL(describe(e)); });
    }
    caf::anon_send_exit(master, caf::exit_reason::user_shutdown);
    return threads.contains(system.middleman().backend().thread_id());
  }
};

} // namespace

TEST_CASE_FIXTURE(completed_from_afar,
                  "a reduction runs on the thread that receives the round's "
                  "last message from another node") {
  sync_reduction<block, block> reduction{
      .merge =
          [this](std::span<identified<block>> parts) {
            note_thread();
            return merge_blocks(parts);
          },
      .finish = [](block x) { return x; }};
  CHECK(by_network_thread(reduction));
}

TEST_CASE_FIXTURE(completed_from_afar,
                  "a callback, which may wait, never runs on the thread that "
                  "receives from other nodes") {
  CHECK_FALSE(by_network_thread([this](std::span<identified<block>> xs) {
    note_thread();
    return add_blocks(xs);
  }));
}

TEST_CASE_FIXTURE(two_nodes,
                  "an actor on another node takes part by requests") {
  auto remote = connect(other, publish());
  caf::scoped_actor self{other};
  std::optional<pipe_type> pipe;
  register_slave(self, remote, 1)
      .receive([&](slave_ticket& t) { pipe.emplace(remote, t); },
               [](caf::error& e) { FAIL(describe(e)); });
  auto waiting = pipe->run_slave(self, block{1, 2});
  caf::scoped_actor owner{system};
  run_master(owner, master, block{10, 20})
      .receive(
          [](const block& x) {
            CHECK(x == block{11, 22});
          },
          [](caf::error& e) { FAIL(describe(e)); });
  std::move(waiting).receive(
      [](const block& x) {
        CHECK(x == block{11, 22});
      },
      [](caf::error& e) { FAIL(describe(e)); });
}

namespace {

/// Slave 1, without a pause. Tells when it is registered.
class busy_slave : public caf::event_based_actor {
public:
  busy_slave(caf::actor_config& config, master_type master, caf::actor witness)
      : caf::event_based_actor{config},
        master_{std::move(master)},
        witness_{std::move(witness)} {}

  caf::behavior make_behavior() override {
    register_slave(this, master_, 1).then([this](const slave_ticket& ticket) {
      pipe_.emplace(master_, ticket);
      detail::send(this, witness_, caf::ok_atom_v);
      next();
    });
    return {[](go_atom) {}};
  }

private:
  void next() {
    pipe_->run_slave(this, block{1})
        .then([this](const block&) { next(); },
              [this](const caf::error& x) { quit(x); });
  }

  master_type master_;
  caf::actor witness_;
  std::optional<pipe_type> pipe_;
};

/// Bytes that this process has taken and not given back.
std::int64_t memory_in_use() {
  auto x = ::mallinfo2();
  return static_cast<std::int64_t>(x.uordblks + x.hblkhd);
}

} // namespace

TEST_CASE_FIXTURE(two_nodes, "rounds of an actor whose master is on another "
                             "node leave nothing behind") {
  caf::scoped_actor owner{system};
  caf::scoped_actor witness{other};
  auto slave =
      other.spawn<busy_slave>(connect(other, publish()), caf::actor{witness});
  witness->receive([](caf::ok_atom) {});
  auto run = [&](int times) {
    while (times-- > 0)
      run_master(owner, master, block{1})
          .receive([](const block&) {},
                   [](const caf::error& e) { FAIL_CHECK(describe(e)); });
  };
  run(500);
  auto before = memory_in_use();
  run(4000);
  auto taken = memory_in_use() - before;
  MESSAGE(taken, " bytes");
  CHECK(taken < 4000 * 40);
  caf::anon_send_exit(slave, caf::exit_reason::kill);
}

TEST_CASE_FIXTURE(two_nodes,
                  "an error keeps its code and text on its way to another "
                  "node") {
  auto remote = connect(other, publish());
  auto first = register_in(other, remote, 1);
  auto twice = register_slave_thread<block, block>(other, remote, 1);
  REQUIRE_FALSE(twice);
  CHECK(describe(twice.error())
        == "duplicate_identifier: layer bn1, round 1: replica 1 is registered "
           "already");
}

TEST_CASE_FIXTURE(two_nodes, "an actor of another node that says it is the "
                             "owner fails no round before the owner has led") {
  auto remote = connect(other, publish());
  caf::scoped_actor stranger{other};
  detail::send(stranger, remote, give_up_atom_v, round_tag{}, "no memory");
  // Behind it, so that it is there.
  detail::request(stranger, remote, nr_slaves_atom_v)
      .receive([](std::uint64_t) {},
               [](const caf::error& e) { FAIL(describe(e)); });
  caf::scoped_actor owner{system};
  run_master(owner, master, block{10})
      .receive([](const block& x) { CHECK(x == block{10}); },
               [](const caf::error& e) { FAIL_CHECK(describe(e)); });
}

namespace {

/// Waits until the master has read what was sent before to `remote`, and checks
/// that its owner, alone, gets its own.
void check_owner_is_alone(two_nodes& nodes, const master_type& remote) {
  caf::scoped_actor self{nodes.other};
  detail::request(self, remote, nr_slaves_atom_v)
      .receive([](std::uint64_t n) { CHECK(n == 0); },
               [](const caf::error& e) { FAIL(describe(e)); });
  caf::scoped_actor owner{nodes.system};
  run_master(owner, nodes.master, block{10})
      .receive([](const block& x) { CHECK(x == block{10}); },
               [](const caf::error& e) { FAIL_CHECK(describe(e)); });
}

} // namespace

TEST_CASE_FIXTURE(two_nodes, "a message of another node that has no sender is "
                             "not the owner's") {
  auto remote = connect(other, publish());
  round_tag tag{layer_hash("bn1"), 1, 1, 0};
  detail::anon_send(remote, run_slave_atom_v, tag, block{1000});
  detail::anon_send(remote, run_master_atom_v, block{1000});
  detail::anon_send(remote, give_up_atom_v, round_tag{}, "no memory");
  check_owner_is_alone(*this, remote);
}

// CAF 1.x sends no such message, nor what comes behind it.
TEST_CASE_FIXTURE(two_nodes, "a message of another node that wants to be "
                             "answered as a thread of this one is dropped"
                                 * doctest::skip(detail::caf_line != 0)) {
  auto remote = connect(other, publish());
  auto answer = std::make_shared<future_result<block>>();
  auto slot = [&] { return detail::make_reply_slot(answer); };
  round_tag tag{layer_hash("bn1"), 1, 1, 1};
  detail::anon_send(remote, run_slave_atom_v, tag, block{1}, slot());
  detail::anon_send(remote, run_master_atom_v, block{1}, slot());
  detail::anon_send(remote, give_up_atom_v, round_tag{}, "no memory", slot());
  check_owner_is_alone(*this, remote);
}

TEST_CASE_FIXTURE(two_nodes, "who asks again and again a master that is gone "
                             "keeps nothing of it") {
  caf::scoped_actor self{system};
  caf::anon_send_exit(master, caf::exit_reason::kill);
  self->wait_for(master);
  auto ask = [&](int times) {
    while (times-- > 0)
      register_slave(self, master, 1)
          .receive([](const slave_ticket&) { FAIL("a ticket"); },
                   [](const caf::error& e) {
                     CHECK(code_of(e) == errc::master_down);
                   });
  };
  ask(500);
  auto before = memory_in_use();
  ask(2000);
  CHECK(memory_in_use() - before < 2000 * 40);
}

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

namespace {

/// Outlives the others, who hold handles of its actors.
struct third_node {
  int third_types = init_types();
  network_config third_cfg;
  caf::actor_system third{third_cfg};
};

struct three_nodes : third_node, two_nodes {};

} // namespace

TEST_CASE_FIXTURE(three_nodes, "a directory that names an actor of another "
                               "node than its own is not believed") {
  auto elsewhere =
      spawn_sync_master<block, block>(third, {.layer = "bn1"}, add_blocks);
  named_master named{"bn1", elsewhere};
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
  CHECK_MESSAGE(remote, describe(remote.error()));
  if (remote) {
    caf::scoped_actor self{other};
    register_slave(self, *remote, 1, ever)
        .receive([](const slave_ticket&) {},
                 [](const caf::error& e) { FAIL_CHECK(describe(e)); });
  }
  caf::anon_send_exit(directory, caf::exit_reason::user_shutdown);
}

TEST_CASE_FIXTURE(two_nodes,
                  "a node that goes away ends the round for the others") {
  auto port = publish();
  auto here = register_in(system, master, 2);
  {
    config third_cfg;
    caf::actor_system third{third_cfg};
    auto there = register_in(third, connect(third, port), 1);
  }
  CHECK(outcome_of(here.run_slave(block{1}))
            .failed(errc::participant_down, {"layer bn1", "replica 1"}));
}

namespace {

/// A node with a master for the other one.
struct meeting_node {
  network_config cfg;
  caf::actor_system system{cfg};
  master_type master =
      spawn_sync_master<block, block>(system, {.layer = "sum"}, add_blocks);
  std::uint16_t port = publish_master(system, master).value();

  ~meeting_node() {
    caf::anon_send_exit(master, caf::exit_reason::user_shutdown);
  }

  /// Whether the other node's master answers.
  bool meets(std::uint16_t other) {
    auto found = remote_master<block, block>(system, "127.0.0.1", other);
    if (!found)
      return false;
    bool result = false;
    caf::scoped_actor self{system};
    detail::request_within(self, std::chrono::seconds{2}, *found,
                           nr_slaves_atom_v)
        .receive([&](std::uint64_t) { result = true; },
                 [](const caf::error&) {});
    return result;
  }
};

} // namespace

// In one of a hundred trials CAF 0.17.6 ends both connections. CAF 1.1 leaves
// both open in one of twenty, and loses the answers until heartbeats end them.
TEST_CASE("two nodes that connect to each other at the same moment reach each "
          "other"
          * doctest::skip(detail::caf_line != 0)) {
  init_types();
  for (int trial = 0; trial < 250; ++trial) {
    meeting_node first, second;
    std::barrier together{2};
    auto meet = [&together](meeting_node& node, const meeting_node& other) {
      together.arrive_and_wait();
      return node.meets(other.port);
    };
    bool there = false;
    std::thread thread{[&] { there = meet(first, second); }};
    bool back = meet(second, first);
    thread.join();
    REQUIRE(there);
    REQUIRE(back);
  }
}

TEST_CASE_FIXTURE(two_nodes,
                  "an actor's pipe to another node has no future, and says "
                  "so") {
  auto remote = connect(other, publish());
  caf::scoped_actor self{other};
  std::optional<pipe_type> pipe;
  register_slave(self, remote, 1)
      .receive([&](slave_ticket& t) { pipe.emplace(remote, t); },
               [](caf::error& e) { FAIL(describe(e)); });
  CHECK(outcome_of(pipe->run_slave(block{1})).failed(errc::invalid_argument));
}

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

namespace {

/// How many segments with data all connections of this process have sent.
std::uint64_t segments_sent() {
  std::uint64_t sum = 0;
  for (int socket = 0; socket < 1024; ++socket) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0)
      sum += info.tcpi_data_segs_out;
  }
  return sum;
}

/// Two nodes: the masters of many layers on one, their relays with replica 1 on
/// the other.
struct layered_nodes : two_systems {
  static constexpr std::size_t layers = 32;

  caf::scoped_actor owner{system};
  caf::scoped_actor slave{other};
  std::vector<caf::actor> all;
  std::vector<master_type> masters;
  std::vector<pipe_type> pipes;

  layered_nodes() {
    std::vector<named_master> names;
    for (std::size_t i = 0; i < layers; ++i) {
      masters.push_back(spawn_sync_master<block, block>(
          system, {.layer = name_of(i)}, sum_of_blocks()));
      names.emplace_back(name_of(i), masters.back());
      keep(masters.back());
    }
    auto directory = spawn_master_directory(system, names);
    keep(directory);
    auto port = publish_master(system, directory);
    REQUIRE(port);
    for (std::size_t i = 0; i < layers; ++i) {
      auto far =
          remote_master<block, block>(other, "127.0.0.1", *port, name_of(i));
      REQUIRE(far);
      auto relay = spawn_sync_relay<block, block>(other, *far, name_of(i), {},
                                                  merge_blocks);
      keep(relay);
      register_slave(slave, relay, 1)
          .receive([&](slave_ticket& t) { pipes.emplace_back(relay, t); },
                   [](caf::error& e) { FAIL(describe(e)); });
    }
  }

  ~layered_nodes() {
    for (const auto& x : all)
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
  }

  template <class Handle>
  void keep(const Handle& x) {
    all.push_back(caf::actor_cast<caf::actor>(x));
  }

  static std::string name_of(std::size_t i) {
    return "bn" + std::to_string(i);
  }

  static block message(std::size_t i, std::int64_t id, int round) {
    return block_of(id, static_cast<int>(i) * 100 + round);
  }

  /// One round of each layer, all of them at the same time.
  std::vector<outcome<block>> run(int round) {
    using tree = replica_tree<block, block>;
    std::vector<std::function<outcome<block>()>> waiting;
    for (std::size_t i = 0; i < layers; ++i)
      waiting.push_back(
          tree::later(run_master(owner, masters[i], message(i, 0, round))));
    for (std::size_t i = 0; i < layers; ++i)
      waiting.push_back(
          tree::later(pipes[i].run_slave(slave, message(i, 1, round))));
    std::vector<outcome<block>> result;
    for (auto& x : waiting)
      result.push_back(x());
    return result;
  }

  static block sum(std::size_t i, int round) {
    std::vector<identified<block>> parts{{0, message(i, 0, round)},
                                         {1, message(i, 1, round)}};
    return merge_blocks(parts);
  }
};

} // namespace

TEST_CASE_FIXTURE(layered_nodes,
                  "what layers have ready at the same time travels together, "
                  "with the bits of each layer alone") {
  constexpr int times = 20;
  auto before = segments_sent();
  for (int round = 0; round < times; ++round) {
    auto found = run(round);
    for (std::size_t i = 0; i < found.size(); ++i)
      REQUIRE(found[i].value == sum(i % layers, round));
  }
  auto sent = segments_sent() - before;
  MESSAGE(sent, " segments of ", 2 * times * layers, " messages");
  CHECK(sent >= 2 * times);
#if !defined(SYNCNORM_SANITIZED) // which slows down who sends, and not CAF
  CHECK(sent < times * layers);
#endif
}

TEST_CASE_FIXTURE(layered_nodes, "a layer's round that fails disturbs none of "
                                 "those that travel with it") {
  pipes[3].give_up(slave, "no memory");
  auto found = run(0);
  for (std::size_t i = 0; i < found.size(); ++i)
    if (i % layers == 3)
      CHECK_FALSE(found[i].value);
    else
      CHECK(found[i].value == sum(i % layers, 0));
}
