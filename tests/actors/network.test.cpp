#include "tests/actors/outcome.hpp"
#include "tests/actors/remote_master.hpp"

#include <malloc.h>

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
