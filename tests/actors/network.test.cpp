#include "tests/actors/outcome.hpp"
#include "tests/actors/system.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

using block = double_array;
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

block block_of(std::int64_t identifier, int round) {
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
      auto reply = pipe.run_slave(block_of(pipe.identifier(), round));
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
    run_master(self, master, block_of(0, round))
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

struct two_nodes : system_fixture {
  config other_cfg;
  caf::actor_system other{other_cfg};
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

TEST_CASE_FIXTURE(system_fixture,
                  "an actor whose master on another node never answers does "
                  "not wait for ever") {
  auto silent = system.spawn([]() -> caf::behavior {
    return {[](run_slave_atom, const round_tag&, const block&) {
      return caf::delegated<block>{};
    }};
  });
  auto port = system.middleman().publish(silent, 0, "127.0.0.1");
  REQUIRE(port);
  config other_cfg;
  caf::actor_system other{other_cfg};
  auto remote = other.middleman().remote_actor("127.0.0.1", *port);
  REQUIRE(remote);
  pipe_type pipe{caf::actor_cast<master_type>(*remote),
                 {{1, 1, 1, 1}, std::chrono::milliseconds{1}}};
  caf::scoped_actor self{other};
  pipe.run_slave(self, block{1})
      .receive(
          [](const block&) { FAIL("an answer"); },
          [](const caf::error& e) { CHECK(e == caf::sec::request_timeout); });
  caf::anon_send_exit(silent, caf::exit_reason::kill);
}
