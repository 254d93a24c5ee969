// Threads that live on, as those of a pool, when the actor system that they
// used ends. If it waited for them, these tests would not end.

#include "syncnorm/batch_norm_layer.hpp"
#include "syncnorm/batch_norm_stage.hpp"
#include "syncnorm/master_directory.hpp"

#include "tests/actors/remote_master.hpp"

#include <doctest/doctest.h>

#include <array>
#include <latch>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// Calls `use` with an `Env`, which has an actor system, on a thread that
/// outlives it.
template <class Env, class F>
void outlive(F use) {
  std::latch used{1};
  std::latch ended{1};
  std::thread pool;
  {
    Env env;
    pool = std::thread{[&] {
      use(env);
      used.count_down();
      ended.wait();
    }};
    used.wait();
  }
  ended.count_down();
  pool.join();
}

using scalar_master = sync_master<double, double>;

} // namespace

TEST_CASE(
    "an actor system ends while a thread lives on that owned a master and "
    "was a slave of it") {
  outlive<system_fixture>([](system_fixture& env) {
    scalar_master master{env.system, {.layer = "bn1"}, add_up};
    auto pipe = master.register_slave(1);
    REQUIRE(pipe);
    CHECK(master.nr_slaves() == 1);
    for (int round = 0; round < 3; ++round) {
      pipe->run_slave_async(1.0);
      CHECK(master.run_master(2.0).value() == 3);
      CHECK(pipe->await_reply().value() == 3);
    }
  });
}

TEST_CASE("an actor system ends while a thread lives on that only sent to a "
          "slave's pipe, first or last of its round") {
  for (int trial = 0; trial < 10; ++trial)
    outlive<system_fixture>([trial](system_fixture& env) {
      std::optional<scalar_master> master;
      std::optional<slave_pipe<double, double>> pipe;
      auto first = trial % 2 == 0;
      std::latch made{1};
      std::latch sent{1};
      std::thread owner{[&] {
        master.emplace(env.system, sync_options{.layer = "bn1"}, add_up);
        auto one = master->register_slave(1);
        REQUIRE(one);
        pipe.emplace(std::move(*one));
        made.count_down();
        if (first)
          sent.wait();
        CHECK(master->run_master(2.0).value() == 3);
      }};
      made.wait();
      pipe->run_slave_async(1.0);
      sent.count_down();
      CHECK(pipe->await_reply().value() == 3);
      owner.join();
    });
}

TEST_CASE("an actor system ends while threads live on that ran the copies of a "
          "layer") {
  for (int trial = 0; trial < 10; ++trial)
    outlive<system_fixture>([](system_fixture& env) {
      batch_norm_layer first{env.system, {.name = "bn1", .channels = 1}};
      auto second = first.clone();
      std::vector copies{&first, &second};
      execute_replication_callbacks(copies);
      auto layout =
          make_layout(dtype::float32, std::array<std::int64_t, 2>{2, 1});
      auto forward = [&](batch_norm_layer& layer) {
        std::array<float, 2> x{1, 2};
        std::array<float, 2> y{};
        std::ignore = layer.forward({x.data(), layout}, {y.data(), layout});
        CHECK(y[1] > 0);
      };
      std::thread other{[&] { forward(second); }};
      forward(first);
      other.join();
      release_replicas(copies);
    });
}

TEST_CASE(
    "an actor system ends while a thread lives on that replicated stages") {
  outlive<system_fixture>([](system_fixture& env) {
    batch_norm_stage first{env.system, {.name = "bn1", .channels = 1}};
    batch_norm_stage second{env.system, {.name = "bn1", .channels = 1}};
    std::vector stages{&first, &second};
    execute_replication_callbacks(stages);
    release_replicas(stages);
  });
}

TEST_CASE(
    "two actor systems end while a thread lives on that published, looked "
    "up and used a master") {
  outlive<two_systems>([](two_systems& env) {
    sync_master<block, block> master{env.system, {.layer = "bn1"}, add_blocks};
    auto directory =
        spawn_master_directory(env.system, {{"bn1", master.handle()}});
    auto port = publish_master(env.system, directory);
    REQUIRE(port);
    auto remote =
        remote_master<block, block>(env.other, "127.0.0.1", *port, "bn1");
    REQUIRE(remote);
    auto pipe = register_in(env.other, *remote, 1);
    pipe.run_slave_async(block{1});
    CHECK(master.run_master(block{2}).value() == block{3});
    CHECK(pipe.await_reply().value() == block{3});
    caf::anon_send_exit(directory, caf::exit_reason::user_shutdown);
  });
}
