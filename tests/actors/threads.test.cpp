#include "tests/actors/outcome.hpp"
#include "tests/actors/system.hpp"

#include "syncnorm/detail/spin.hpp"
#include "syncnorm/detail/thread_link.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#include <unistd.h>
#endif

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

namespace {

using master_type = sync_master<double, double>;
using pipe_type = slave_pipe<double, double>;

/// Runs `work(pipe)` in a thread of its own for each of the slaves 1 to `n`.
template <class Work>
std::vector<std::thread> spawn_slaves(master_type& master, int n, Work work) {
  std::vector<std::thread> threads;
  for (int i = 1; i <= n; ++i) {
    auto pipe = master.register_slave(i);
    REQUIRE(pipe);
    threads.emplace_back(
        [work, p = std::make_shared<pipe_type>(std::move(*pipe))]() mutable {
          auto mine = std::move(p);
          work(*mine);
        });
  }
  return threads;
}

void join(std::vector<std::thread>& threads) {
  for (auto& t : threads)
    t.join();
}

} // namespace

#ifdef __linux__
TEST_CASE("who may spin is counted by the cores that the process may use, not "
          "by those of the machine or of one thread") {
  cpu_set_t all;
  REQUIRE(sched_getaffinity(getpid(), sizeof all, &all) == 0);
  auto cores = CPU_COUNT(&all);
  CHECK(detail::usable_cores() == cores);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &all))
      CPU_SET(core, &one);
  std::thread{[&] {
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(detail::usable_cores() == cores);
  }}.join();
  REQUIRE(sched_setaffinity(getpid(), sizeof one, &one) == 0);
  CHECK(detail::usable_cores() == 1);
  REQUIRE(sched_setaffinity(getpid(), sizeof all, &all) == 0);
}
#endif

TEST_CASE_FIXTURE(system_fixture,
                  "threads run rounds without a pause, each gets the sum") {
  for (int slaves : {1, 2, 3, 7}) {
    master_type master{system, {.layer = "bn1"}, add_up};
    constexpr int rounds = 5000;
    std::atomic<int> wrong = 0;
    auto expected = [slaves](int round) {
      return round + slaves * (slaves + 1) / 2.0;
    };
    auto threads = spawn_slaves(master, slaves, [&](pipe_type& pipe) {
      for (int k = 0; k < rounds; ++k) {
        auto x = pipe.run_slave(static_cast<double>(pipe.identifier()));
        wrong += !x || *x != expected(k);
      }
    });
    CHECK(master.nr_slaves() == static_cast<std::uint64_t>(slaves));
    for (int k = 0; k < rounds; ++k) {
      auto x = master.run_master(k);
      wrong += !x || *x != expected(k);
    }
    join(threads);
    CHECK(wrong == 0);
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a thread can do other work between sending and getting") {
  master_type master{system, {.layer = "bn1"}, add_up};
  auto pipe = std::move(*master.register_slave(1));
  auto& future = pipe.run_slave_async(20);
  CHECK_FALSE(future.is_ready());
  CHECK(*master.run_master(1) == 21);
  CHECK(*future.get() == 21);
}

TEST_CASE_FIXTURE(system_fixture,
                  "threads and actors take part in the same round") {
  master_type master{system, {.layer = "bn1"}, add_up};
  caf::scoped_actor actor{system};
  std::optional<pipe_type> mine;
  register_slave(actor, master.handle(), 2)
      .receive([&](slave_ticket& t) { mine.emplace(master.handle(), t); },
               [](caf::error& e) { FAIL(describe(e)); });
  auto threads = spawn_slaves(master, 1, [](pipe_type& pipe) {
    for (int i = 0; i < 100; ++i)
      CHECK(*pipe.run_slave(1) == 111);
  });
  std::thread owner{[&] {
    for (int i = 0; i < 100; ++i)
      CHECK(*master.run_master(100) == 111);
  }};
  for (int i = 0; i < 100; ++i)
    mine->run_slave(actor, 10.0)
        .receive([](double x) { CHECK(x == 111); },
                 [](caf::error& e) { FAIL(describe(e)); });
  owner.join();
  join(threads);
}

TEST_CASE_FIXTURE(system_fixture,
                  "a thread that lets go of its pipe, by an exception too, "
                  "ends the round for the others") {
  master_type master{system, {.layer = "bn1"}, add_up};
  auto threads = spawn_slaves(master, 2, [](pipe_type& pipe) {
    try {
      if (pipe.identifier() == 2)
        throw std::runtime_error{"broken"};
      auto x = outcome_of(pipe.run_slave(1));
      CHECK(x.failed(errc::participant_down, {"layer bn1", "replica 2"}));
    } catch (const std::runtime_error&) {
    }
  });
  CHECK(outcome_of(master.run_master(1)).count == 1);
  join(threads);
}

TEST_CASE_FIXTURE(system_fixture,
                  "a thread that gives up tells the others why") {
  master_type master{system, {.layer = "bn1"}, add_up};
  auto pipe = std::move(*master.register_slave(1));
  CHECK(pipe.give_up("out of memory") == caf::none);
  CHECK(outcome_of(master.run_master(1))
            .failed(errc::participant_failed, {"replica 1", "out of memory"}));
}

TEST_CASE_FIXTURE(system_fixture,
                  "a thread that gives up and sends its next message is told "
                  "the reason, and so are the others") {
  master_type master{system, {.layer = "bn1", .deadline = 1h}, add_up};
  for (int generation = 0; generation < 50; ++generation) {
    auto one = std::move(*master.register_slave(1));
    auto two = std::move(*master.register_slave(2));
    std::ignore = two.run_slave_async(1);
    CHECK(one.give_up("out of memory") == caf::none);
    for (const auto& x :
         {outcome_of(one.run_slave(1)), outcome_of(two.await_reply())})
      CHECK(x.failed(errc::participant_failed,
                     {"round 1", "replica 1", "out of memory"}));
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a thread that was expelled gives up for nobody, also where "
                  "another one has its identifier") {
  master_type master{system,
                     {.layer = "bn1",
                      .deadline = 1h,
                      .policy = failure_policy::continue_with_survivors},
                     add_up};
  auto old = std::move(*master.register_slave(1));
  CHECK(old.give_up("out of memory") == caf::none);
  auto pipe = std::move(*master.register_slave(1));
  REQUIRE(pipe.generation() == old.generation());
  CHECK(old.give_up("out of time") == caf::none);
  std::ignore = pipe.run_slave_async(1);
  CHECK(outcome_of(master.run_master(2)).value == 3);
  CHECK(outcome_of(pipe.await_reply()).value == 3);
}

TEST_CASE_FIXTURE(system_fixture,
                  "a thread of an earlier generation gives up for nobody") {
  master_type master{system, {.layer = "bn1", .deadline = 1h}, add_up};
  auto old = std::move(*master.register_slave(1));
  std::ignore = old.run_slave_async(1);
  CHECK(outcome_of(master.run_master(2)).value == 3);
  auto pipe = std::move(*master.register_slave(1));
  CHECK(old.give_up("out of memory") == caf::none);
  std::ignore = pipe.run_slave_async(1);
  CHECK(outcome_of(master.run_master(2)).value == 3);
}

TEST_CASE_FIXTURE(system_fixture,
                  "the round's deadline ends the wait of a thread") {
  master_type master{system, {.layer = "bn1", .deadline = 50ms}, add_up};
  auto pipe = std::move(*master.register_slave(1));
  CHECK(outcome_of(pipe.run_slave(1))
            .failed(errc::deadline_exceeded, {"layer bn1", "replica 0"}));
}

TEST_CASE_FIXTURE(system_fixture,
                  "a thread's own shorter deadline ends its wait, and the "
                  "others learn that it has left") {
  master_type master{system, {.layer = "bn1"}, add_up};
  auto pipe = std::move(*master.register_slave(1));
  CHECK(outcome_of(pipe.run_slave(1, 50ms)).failed(errc::deadline_exceeded));
  // Its message is still there: the first round may run before the master
  // learns that the slave has left.
  auto x = outcome_of(master.run_master(1));
  if (x.value)
    x = outcome_of(master.run_master(1));
  CHECK(x.failed(errc::participant_down, {"layer bn1", "replica 1"}));
}

TEST_CASE_FIXTURE(system_fixture,
                  "who waits for a reply and has sent nothing is told so, and "
                  "the next round runs") {
  master_type master{system, {.layer = "bn1", .deadline = 1h}, add_up};
  auto pipe = std::move(*master.register_slave(1));
  caf::scoped_actor actor{system};
  std::optional<pipe_type> actors;
  register_slave(actor, master.handle(), 2)
      .receive([&](slave_ticket& t) { actors.emplace(master.handle(), t); },
               [](caf::error& e) { FAIL(describe(e)); });
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 2; ++i) {
      std::string missing{"none outstanding"};
      CHECK(outcome_of(master.await_reply())
                .failed(errc::invalid_argument, {"sync_master", missing}));
      CHECK(outcome_of(pipe.await_reply())
                .failed(errc::invalid_argument, {"replica 1", missing}));
      CHECK(outcome_of(actors->await_reply())
                .failed(errc::invalid_argument, {"replica 2", missing}));
    }
    auto& one = pipe.run_slave_async(1);
    std::ignore = actors->run_slave_async(10);
    CHECK(outcome_of(master.run_master(100)).value == 111);
    CHECK(outcome_of(actors->await_reply()).value == 111);
    // A reply that was fetched from the future is no longer outstanding.
    CHECK(outcome_of(one.get()).value == 111);
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a thread that has left is told so whenever it waits or "
                  "sends again") {
  master_type master{system, {.layer = "bn1", .deadline = 1h}, add_up};
  auto pipe = std::move(*master.register_slave(1));
  std::ignore = pipe.run_slave_async(1);
  for (int i = 0; i < 3; ++i)
    CHECK(outcome_of(pipe.await_reply(50ms))
              .failed(errc::deadline_exceeded,
                      {"replica 1, round 1: its thread waited"}));
  CHECK(outcome_of(pipe.run_slave(1)).failed(errc::deadline_exceeded));
  CHECK(outcome_of(pipe.run_slave_async(1).get())
            .failed(errc::deadline_exceeded));
}

TEST_CASE_FIXTURE(system_fixture,
                  "a second message before the reply to the first was fetched "
                  "is refused, and the round runs without it") {
  master_type master{system, {.layer = "bn1", .deadline = 1h}, add_up};
  auto pipe = std::move(*master.register_slave(1));
  for (int round = 0; round < 2; ++round) {
    auto& future = pipe.run_slave_async(1);
    for (int i = 0; i < 2; ++i) {
      // Whether or not anybody looks at the error.
      std::ignore = pipe.run_slave_async(10);
      CHECK(outcome_of(pipe.run_slave_async(10).get())
                .failed(errc::invalid_argument, {"replica 1", "fetched"}));
      CHECK(outcome_of(pipe.run_slave(10)).failed(errc::invalid_argument));
    }
    CHECK(outcome_of(master.run_master(2)).value == 3);
    CHECK(outcome_of(pipe.run_slave(10)).failed(errc::invalid_argument));
    CHECK(outcome_of(future.get()).value == 3);
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "an owner's second message before the reply to the first was "
                  "taken is refused, and the rounds run without it") {
  master_type master{system, {.layer = "bn1", .deadline = 1h}, add_up};
  auto pipe = std::move(*master.register_slave(1));
  for (int round = 0; round < 2; ++round) {
    std::ignore = pipe.run_slave_async(1);
    CHECK(master.send_master(2) == caf::none);
    CHECK(code_of(master.send_master(10)) == errc::invalid_argument);
    CHECK(outcome_of(master.run_master(10))
              .failed(errc::invalid_argument, {"layer bn1", "owner's last"}));
    CHECK(outcome_of(pipe.await_reply()).value == 3);
    CHECK(outcome_of(master.await_reply()).value == 3);
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a thread with a negative timeout does not wait, however "
                  "negative it is") {
  for (caf::timespan timeout : {caf::timespan{-1s}, caf::timespan::min()}) {
    master_type master{system, {.layer = "bn1", .deadline = 1h}, add_up};
    auto pipe = std::move(*master.register_slave(1));
    CHECK(outcome_of(pipe.run_slave(1, timeout))
              .failed(errc::deadline_exceeded, {"its thread waited"}));
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a pipe that was moved from, or made with a null master, "
                  "says that it has none") {
  master_type master{system, {.layer = "bn1", .deadline = 1h}, add_up};
  auto from = std::move(*master.register_slave(1));
  auto pipe = std::move(from);
  pipe_type null{pipe_type::master_type{}, slave_ticket{}};
  for (auto* gone : {&from, &null}) {
    CHECK(outcome_of(gone->run_slave(10))
              .failed(errc::invalid_argument, {"no master"}));
    CHECK(outcome_of(gone->run_slave_async(10).get())
              .failed(errc::invalid_argument));
    CHECK(outcome_of(gone->await_reply()).failed(errc::invalid_argument));
    CHECK(code_of(gone->give_up("tired")) == errc::invalid_argument);
  }
  std::ignore = pipe.run_slave_async(1);
  CHECK(outcome_of(master.run_master(2)).value == 3);
  CHECK(outcome_of(pipe.await_reply()).value == 3);
}

TEST_CASE_FIXTURE(system_fixture,
                  "a thread's own deadline ends its wait also where it was "
                  "ready to wait longer in the rounds before") {
  // Long beside what ctest allows.
  for (auto longer : {std::optional<caf::timespan>{}, {2h}}) {
    master_type master{system, {.layer = "bn1", .deadline = 1h}, add_up};
    auto pipe = std::move(*master.register_slave(1));
    // A timer runs from a round on in which somebody has to wait.
    for (int round = 0; round < 50; ++round) {
      std::thread slave{
          [&] { CHECK(outcome_of(pipe.run_slave(1, longer)).value == 3); }};
      std::this_thread::yield();
      CHECK(outcome_of(master.run_master(2, longer)).value == 3);
      slave.join();
    }
    CHECK(outcome_of(pipe.run_slave(1, 50ms))
              .failed(errc::deadline_exceeded,
                      {"replica 1, round 51: its thread waited"}));
    auto next = std::move(*master.register_slave(1));
    std::ignore = next.run_slave_async(1);
    CHECK(outcome_of(master.run_master(2, longer)).value == 3);
    CHECK(outcome_of(next.await_reply()).value == 3);
    CHECK(outcome_of(master.run_master(2, 50ms))
              .failed(errc::deadline_exceeded,
                      {"layer bn1: the owner: its thread waited"}));
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "deadlines of a thread that alternate end its wait, each "
                  "in its round") {
  master_type master{system, {.layer = "bn1", .deadline = 1h}, add_up};
  auto pipe = std::move(*master.register_slave(1));
  for (int round = 0; round < 200; ++round) {
    std::thread slave{[&] { CHECK(outcome_of(pipe.run_slave(1)).value == 3); }};
    auto timeout = round % 2 == 0 ? 30min + round * 1s : 10min - round * 1s;
    CHECK(outcome_of(master.run_master(2, timeout)).value == 3);
    slave.join();
  }
  CHECK(outcome_of(master.run_master(2, 50ms))
            .failed(errc::deadline_exceeded,
                    {"layer bn1: the owner: its thread waited"}));
}

TEST_CASE_FIXTURE(system_fixture,
                  "an owner that waited past its own deadline has left the "
                  "round, and takes nothing of it for that of a later one") {
  master_type master{system, {.layer = "bn1"}, add_up};
  auto early = std::move(*master.register_slave(1));
  CHECK(outcome_of(master.run_master(1, 50ms)).failed(errc::deadline_exceeded));
  CHECK(outcome_of(early.run_slave(10))
            .failed(errc::participant_failed,
                    {"layer bn1", "replica 0 gave up: it waited"}));
  for (int i = 0; i < 2; ++i) {
    auto pipe = std::move(*master.register_slave(1));
    std::ignore = pipe.run_slave_async(2000);
    CHECK(outcome_of(master.run_master(1000)).value == 3000);
    CHECK(outcome_of(pipe.await_reply()).value == 3000);
    // Its own deadline still ends its wait.
    CHECK(
        outcome_of(master.run_master(1, 50ms)).failed(errc::deadline_exceeded));
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "the longest deadline of a thread is as good as none") {
  master_type master{system, {.layer = "bn1"}, add_up};
  auto pipe = std::move(*master.register_slave(1));
  std::thread slave{[&] {
    CHECK(outcome_of(pipe.run_slave(1, caf::timespan::max())).value == 3);
  }};
  CHECK(outcome_of(master.run_master(2, caf::timespan::max())).value == 3);
  slave.join();
}

TEST_CASE_FIXTURE(system_fixture,
                  "a thread that waits with the longest deadline is not due "
                  "when its agent looks") {
  detail::thread_link<double> link;
  caf::scoped_actor agent{system};
  link.expect();
  std::thread waiting{[&, handle = caf::actor_cast<caf::actor>(agent)] {
    CHECK(outcome_of(link.wait(handle, caf::timespan::max(), [] { return ""; }))
              .value
          == 3);
  }};
  agent->receive([](check_deadline_atom) {});
  auto left = link.remaining();
  CHECK((left && *left > 1h));
  CHECK(link.result->put(3) == caf::none);
  waiting.join();
}

TEST_CASE_FIXTURE(
    system_fixture,
    "a thread whose reply comes when its deadline is over, and is "
    "in its next round when its agent acts, stays") {
  detail::thread_link<double> link;
  caf::scoped_actor agent{system};
  std::thread waiting{[&, handle = caf::actor_cast<caf::actor>(agent)] {
    for (auto timeout : {caf::timespan{0}, caf::timespan::max()}) {
      link.expect();
      auto reply = link.wait(handle, timeout, [] { return ""; });
      CHECK(outcome_of(std::move(reply)).value == 3);
    }
  }};
  agent->receive([](check_deadline_atom) {});
  CHECK(link.remaining() == caf::timespan{0});
  CHECK(link.result->put(3) == caf::none);
  agent->receive([](check_deadline_atom) {});
  CHECK_FALSE(link.leave());
  CHECK(link.result->put(3) == caf::none);
  waiting.join();
}

TEST_CASE("a thread that has left keeps no master until its deadline") {
  system_fixture env;
  auto master = spawn_sync_master<double, double>(
      env.system, {.layer = "bn1", .deadline = 1h}, add_up);
  auto pipe =
      std::move(*register_slave_thread<double, double>(env.system, master, 1));
  caf::scoped_actor owner{env.system};
  // The timer runs from a round on in which the slave has to wait.
  for (int round = 0; round < 50; ++round) {
    std::thread slave{[&] { CHECK(outcome_of(pipe.run_slave(1)).value == 3); }};
    std::this_thread::yield();
    run_master(owner, master, 2.0)
        .receive([](double sum) { CHECK(sum == 3); },
                 [](const caf::error& x) { FAIL(describe(x)); });
    slave.join();
  }
  // The system waits for the master.
}

TEST_CASE_FIXTURE(system_fixture,
                  "a callback that does not return holds the thread that runs "
                  "it and no other one past its deadline") {
  std::atomic<int> released = 0;
  master_type master{system, {.layer = "bn1"}, [&](auto messages) {
                       for (auto n = released.load(); n < 2;
                            n = released.load())
                         released.wait(n);
                       return add_up(messages);
                     }};
  auto release = [&] {
    ++released;
    released.notify_all();
  };
  auto threads = spawn_slaves(master, 2, [&](pipe_type& pipe) {
    CHECK(outcome_of(pipe.run_slave(1, 50ms)).count == 1);
    release();
  });
  CHECK(outcome_of(master.run_master(1, 50ms)).count == 1);
  release();
  join(threads);
}

TEST_CASE_FIXTURE(system_fixture,
                  "a master that is gone is an error at once, not a wait") {
  std::optional<pipe_type> pipe;
  caf::error reason;
  {
    master_type master{system, {.layer = "bn1"}, add_up};
    pipe.emplace(std::move(*master.register_slave(1)));
  }
  auto first = outcome_of(pipe->run_slave(1));
  CHECK(first.count == 1);
  // The master may be on its way out: then the text is its own.
  CHECK(first.failed(errc::master_down));
  CHECK(outcome_of(pipe->run_slave(1))
            .failed(errc::master_down, {"replica 1: the master was gone"}));
}

TEST_CASE_FIXTURE(system_fixture,
                  "registering with a bad identifier is an error for a "
                  "thread too") {
  master_type master{system, {.layer = "bn1"}, add_up};
  auto x = master.register_slave(-3);
  REQUIRE_FALSE(x);
  CHECK(code_of(x.error()) == errc::invalid_identifier);
  auto first = master.register_slave(1);
  auto twice = master.register_slave(1);
  REQUIRE_FALSE(twice);
  CHECK(code_of(twice.error()) == errc::duplicate_identifier);
}
