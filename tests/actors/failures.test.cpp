#include "tests/actors/collective.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

namespace {

using adder = collective<double, double>;

sync_options bn2() {
  return {.layer = "bn2"};
}

/// Short enough to be waited for, and only ever waited for: no test depends on
/// something being faster.
sync_options impatient(failure_policy policy = failure_policy::fail_round) {
  return {.layer = "bn2", .deadline = 50ms, .policy = policy};
}

struct config_without_middleman : caf::actor_system_config {
  config_without_middleman() {
    detail::add_types<caf::id_block::syncnorm>(*this);
  }
};

/// After any failure: a new generation of two slaves runs a round.
void check_serves_again(adder& c) {
  auto pipes = c.pipes(2);
  auto one = c.send(pipes[0], 1, 1);
  auto two = c.send(pipes[1], 2, 2);
  CHECK(c.lead(4)().value == 7);
  CHECK(one().value == 7);
  CHECK(two().value == 7);
}

/// Slave 1 and the owner run a round.
void check_round(adder& c, adder::pipe_type& pipe) {
  auto one = c.send(pipe, 1, 1);
  CHECK(c.lead(1)().value == 2);
  CHECK(one().value == 2);
}

/// Actor `i` gives up for the owner.
void give_up(adder& c, std::size_t i) {
  detail::send(c.actor(i), c.master(), give_up_atom_v, round_tag{},
               std::string{"no data"});
}

} // namespace

TEST_CASE_FIXTURE(system_fixture,
                  "a slave that dies ends the round for all others with an "
                  "error that names layer, round and replica") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(3);
  auto zero = c.lead(0);
  auto one = c.send(pipes[0], 1, 1);
  c.settle();
  c.kill(3);
  CHECK(zero().failed(errc::participant_down,
                      {"layer bn2, round 1", "replica 3"}));
  CHECK(one().failed(errc::participant_down, {"replica 3"}));
  // One that comes later gets the same error, once.
  CHECK(c.send(pipes[1], 2, 2)().failed(errc::participant_down, {"replica 3"}));
  // From then on it is told what to do, and still why.
  CHECK(c.send(pipes[1], 2, 2)().failed(errc::stale,
                                        {"register again", "replica 3"}));
  check_serves_again(c);
}

TEST_CASE("participants in several actor systems of one process are told "
          "apart, also without a middleman, where CAF takes them for one") {
  init_types();
  for (std::size_t dying : {0, 1}) {
    config_without_middleman cfg;
    caf::actor_system home{cfg};
    caf::actor_system first{cfg};
    caf::actor_system second{cfg};
    auto master = spawn_sync_master<double, double>(
        home, {.layer = "bn2", .participants = 3}, add_up);
    std::vector<std::unique_ptr<caf::scoped_actor>> slaves;
    slaves.push_back(std::make_unique<caf::scoped_actor>(first));
    slaves.push_back(std::make_unique<caf::scoped_actor>(second));
    REQUIRE((*slaves[0])->address() == (*slaves[1])->address());
    std::vector<slave_pipe<double, double>> pipes;
    for (std::size_t i = 0; i < 2; ++i)
      register_slave(*slaves[i], master, std::int64_t(i) + 1)
          .receive([&](slave_ticket& x) { pipes.emplace_back(master, x); },
                   [](const caf::error& x) { FAIL(describe(x)); });
    auto& other = *slaves[1 - dying];
    auto answer = pipes[1 - dying].run_slave(other, 1.0);
    slaves[dying].reset();
    outcome<double> got;
    std::move(answer).receive([&](double x) { got(x); },
                              [&](const caf::error& x) { got(x); });
    CHECK(got.failed(errc::participant_down,
                     {dying == 0 ? "replica 1 is" : "replica 2 is"}));
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a slave that dies between rounds ends the next one") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(2);
  auto one = c.send(pipes[0], 1, 1);
  auto two = c.send(pipes[1], 2, 1);
  CHECK(c.lead(1)().value == 3);
  c.kill(1);
  CHECK(c.lead(0)().failed(errc::participant_down,
                           {"layer bn2, round 2", "replica 1"}));
  CHECK(c.send(pipes[1], 2, 1)().failed(errc::participant_down));
  check_serves_again(c);
}

TEST_CASE_FIXTURE(system_fixture,
                  "an owner that dies ends the round for the slaves") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(2);
  caf::scoped_actor* owner = &c.actor(9);
  auto first = c.send(pipes[0], 1, 1);
  auto second = c.send(pipes[1], 2, 1);
  run_master(*owner, c.master(), 1.0)
      .receive([](double) {}, [](const caf::error&) {});
  auto one = c.send(pipes[0], 1, 1);
  c.settle();
  c.kill(9);
  CHECK(one().failed(errc::participant_down, {"round 2", "replica 0"}));
}

TEST_CASE_FIXTURE(system_fixture,
                  "an owner of an earlier generation that dies ends the round "
                  "for the slaves, and another one leads the next") {
  adder c{system, bn2(), add_up};
  auto first = c.pipe(1);
  check_round(c, first);
  auto second = c.pipe(1);
  auto one = c.send(second, 1, 1);
  c.settle();
  c.kill(0);
  CHECK(one().failed(errc::participant_down, {"round 1", "replica 0"}));
  auto third = c.pipe(1);
  check_round(c, third);
}

TEST_CASE_FIXTURE(system_fixture,
                  "an owner gives up before its first round, and in a "
                  "generation in which it has not led yet") {
  adder c{system, bn2(), add_up};
  for (int generation = 0; generation < 2; ++generation) {
    auto pipe = c.pipe(1);
    auto one = c.send(pipe, 1, 1);
    c.settle();
    give_up(c, 0);
    CHECK(one().failed(errc::participant_failed,
                       {"round 1", "replica 0", "no data"}));
    auto next = c.pipe(1);
    check_round(c, next);
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "an owner that takes the place of one that died gives up "
                  "before it has led") {
  adder c{system, bn2(), add_up};
  auto first = c.pipe(1);
  check_round(c, first);
  c.kill(0);
  auto next = c.pipe(1);
  auto one = c.send(next, 1, 1);
  c.settle();
  give_up(c, 0);
  CHECK(one().failed(errc::participant_failed, {"replica 0", "no data"}));
}

TEST_CASE_FIXTURE(system_fixture,
                  "nobody gives up for an owner that has led, but a thread "
                  "that led after it") {
  adder c{system, bn2(), add_up};
  auto pipe = c.pipe(1);
  check_round(c, pipe);
  give_up(c, 2);
  check_round(c, pipe);
  auto led = c.send(pipe, 1, 1);
  auto reply = std::make_shared<future_result<double>>();
  detail::anon_send(c.master(), run_master_atom_v, 1.0,
                    detail::make_reply_slot(reply));
  CHECK(outcome_of(reply->get()).value == 2);
  CHECK(led().value == 2);
  c.kill(0);
  auto lost = c.send(pipe, 1, 1);
  detail::anon_send(c.master(), give_up_atom_v, round_tag{},
                    std::string{"no data"}, detail::make_reply_slot(reply));
  CHECK(lost().failed(errc::participant_failed, {"round 4", "no data"}));
}

TEST_CASE_FIXTURE(
    system_fixture,
    "who gives up once for an owner that is a thread does not "
    "lead: it ends unnoticed, and the thread may give up itself") {
  adder c{system, bn2(), add_up};
  auto reply = std::make_shared<future_result<double>>();
  auto pipe = c.pipe(1);
  give_up(c, 2);
  CHECK(c.send(pipe, 1, 1)().failed(errc::participant_failed, {"no data"}));
  pipe = c.pipe(1);
  c.kill(2);
  auto one = c.send(pipe, 1, 1);
  detail::anon_send(c.master(), run_master_atom_v, 1.0,
                    detail::make_reply_slot(reply));
  CHECK(outcome_of(reply->get()).value == 2);
  CHECK(one().value == 2);
  give_up(c, 2);
  CHECK(c.send(pipe, 1, 1)().failed(errc::participant_failed, {"no data"}));
  pipe = c.pipe(1);
  detail::anon_send(c.master(), give_up_atom_v, round_tag{},
                    std::string{"no time"}, detail::make_reply_slot(reply));
  CHECK(c.send(pipe, 1, 1)().failed(errc::participant_failed, {"no time"}));
}

TEST_CASE_FIXTURE(system_fixture,
                  "an owner that has had the error of a round is told so until "
                  "a slave registers, and leads no round alone") {
  adder c{system, bn2(), add_up};
  auto pipe = c.pipe(1);
  pipe.give_up(c.actor(1), "out of memory");
  CHECK(c.lead(1)().failed(errc::participant_failed));
  CHECK(c.lead(1)().failed(errc::stale));
}

TEST_CASE_FIXTURE(system_fixture,
                  "a thread that never led does not give up for an owner that "
                  "is an actor") {
  adder c{system, bn2(), add_up};
  auto pipe = c.pipe(1);
  check_round(c, pipe);
  auto reply = std::make_shared<future_result<double>>();
  detail::anon_send(c.master(), give_up_atom_v, round_tag{},
                    std::string{"no data"}, detail::make_reply_slot(reply));
  check_round(c, pipe);
}

TEST_CASE_FIXTURE(system_fixture,
                  "an owner that knows for how many it waits has the error of "
                  "a round before it leads the next") {
  adder c{system, {.layer = "bn2", .participants = 2}, add_up};
  c.pipe(1).give_up(c.actor(1), "out of memory");
  auto zero = c.lead(1);
  auto pipe = c.pipe(1);
  auto one = c.send(pipe, 1, 1);
  CHECK(zero().failed(errc::participant_failed));
  CHECK(c.lead(1)().value == 2);
}

TEST_CASE_FIXTURE(system_fixture, "nobody without a name gives up for an "
                                  "owner") {
  adder c{system, bn2(), add_up};
  auto pipe = c.pipe(1);
  detail::anon_send(c.master(), give_up_atom_v, round_tag{},
                    std::string{"no data"});
  check_round(c, pipe);
}

TEST_CASE_FIXTURE(system_fixture,
                  "an owner's message does not come as a slave's") {
  adder c{system, bn2(), add_up};
  auto pipe = c.pipe(1);
  check_round(c, pipe);
  round_tag tag{layer_hash("bn2"), 1, 2, 0};
  CHECK(c.send_tagged(0, tag, 1)().failed(errc::unregistered));
  check_round(c, pipe);
}

TEST_CASE_FIXTURE(system_fixture,
                  "of the reason for which somebody gives up, an error has the "
                  "beginning") {
  adder c{system, bn2(), add_up};
  auto pipe = c.pipe(1);
  pipe.give_up(c.actor(1), std::string(1'000'000, 'x'));
  auto got = c.lead(1)();
  CHECK(got.failed(errc::participant_failed, {"xxx"}));
  CHECK(got.text().size() < 3000);
}

TEST_CASE_FIXTURE(system_fixture,
                  "a slave that never comes ends the round at the deadline, "
                  "and the error says who came and who did not") {
  adder c{system, impatient(), add_up};
  auto pipes = c.pipes(3);
  auto zero = c.lead(0);
  auto one = c.send(pipes[0], 1, 1);
  auto two = c.send(pipes[1], 2, 2);
  for (auto x : {zero(), one(), two()})
    CHECK(x.text()
          == "deadline_exceeded: layer bn2, round 1: waited 0.05 s for replica "
             "3; have replicas 0, 1, 2");
  CHECK(c.send(pipes[2], 3, 3)().failed(errc::deadline_exceeded));
  check_serves_again(c);
}

TEST_CASE_FIXTURE(system_fixture,
                  "a master's own message that never comes ends the round, "
                  "under either policy") {
  for (auto policy :
       {failure_policy::fail_round, failure_policy::continue_with_survivors}) {
    adder c{system, impatient(policy), add_up};
    auto pipes = c.pipes(1);
    CHECK(c.send(pipes[0], 1, 1)().failed(errc::deadline_exceeded,
                                          {"for replica 0; have replica 1"}));
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "the deadline is watched in every later round too") {
  adder c{system, impatient(), add_up};
  auto pipes = c.pipes(1);
  for (int i = 0; i < 2000; ++i) {
    auto one = c.send(pipes[0], 1, 1);
    REQUIRE(c.lead(1)().value == 2);
    REQUIRE(one().value == 2);
  }
  CHECK(c.lead(1)().failed(errc::deadline_exceeded, {"round 2001"}));
}

TEST_CASE_FIXTURE(system_fixture,
                  "a slave that comes twice ends the round for everybody") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(2);
  auto tag = round_tag{layer_hash("bn2"), 1, 1, 1};
  auto zero = c.lead(0);
  auto first = c.send_tagged(1, tag, 1);
  auto again = c.send_tagged(1, tag, 1);
  for (auto x : {zero(), first(), again()})
    CHECK(x.failed(errc::duplicate_message,
                   {"layer bn2, round 1", "replica 1", "two messages"}));
  CHECK(c.send(pipes[1], 2, 1)().failed(errc::duplicate_message));
  check_serves_again(c);
}

TEST_CASE_FIXTURE(system_fixture,
                  "a slave's pipe that is used twice in a round ends it for "
                  "everybody") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(2);
  auto zero = c.lead(0);
  auto first = c.send(pipes[0], 1, 1);
  auto again = c.send(pipes[0], 1, 2);
  for (auto x : {zero(), first(), again()})
    CHECK(x.failed(errc::duplicate_message,
                   {"layer bn2, round 1", "replica 1", "two messages"}));
  check_serves_again(c);
}

TEST_CASE_FIXTURE(system_fixture,
                  "of what a participant has died with, an error has the "
                  "beginning") {
  adder c{system, bn2(), add_up};
  auto slave =
      system.spawn([master = c.master()](caf::event_based_actor* self) {
        register_slave(self, master, 1)
            .then(
                [self](const slave_ticket&) {
                  self->quit(make_error(errc::participant_failed,
                                        std::string(20'000'000, 'x')));
                },
                [](const caf::error& reason) { FAIL(describe(reason)); });
      });
  caf::scoped_actor self{system};
  self->wait_for(slave);
  auto x = c.lead(1)();
  CHECK(x.failed(errc::participant_down, {"replica 1 is down"}));
  CHECK(x.text().size() < 3000);
}

TEST_CASE_FIXTURE(system_fixture,
                  "after a failure no slave is registered for the next round, "
                  "until the first registers again") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(2);
  CHECK(c.nr_slaves() == 2);
  c.kill(2);
  CHECK(c.lead(0)().failed(errc::participant_down, {"replica 2"}));
  CHECK(c.nr_slaves() == 0);
  auto pipe = c.pipe(1);
  CHECK(c.nr_slaves() == 1);
  auto one = c.send(pipe, 1, 2);
  CHECK(c.lead(1)().value == 3);
  CHECK(one().value == 3);
  CHECK(c.nr_slaves() == 1);
}

TEST_CASE_FIXTURE(system_fixture,
                  "an owner is told of the failed round until a slave has "
                  "registered again: then it leads the new generation") {
  for (bool registered : {false, true}) {
    adder c{system, bn2(), add_up};
    auto pipe = c.pipe(1);
    check_round(c, pipe);
    pipe.give_up(c.actor(1), "out of memory");
    if (registered) {
      pipe = c.pipe(1);
      check_round(c, pipe);
    } else {
      CHECK(c.lead(1)().failed(errc::participant_failed, {"round 2"}));
    }
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "an owner that comes twice ends the round for everybody") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(1);
  auto zero = c.lead(0);
  auto again = c.lead(0);
  CHECK(zero().failed(errc::duplicate_message, {"the owner"}));
  CHECK(again().failed(errc::duplicate_message));
  CHECK(c.send(pipes[0], 1, 1)().failed(errc::duplicate_message));
}

TEST_CASE_FIXTURE(system_fixture,
                  "a message for another round or layer ends the round and "
                  "names its sender") {
  for (auto layer : {"bn2", "bn3"}) {
    adder c{system, bn2(), add_up};
    auto pipes = c.pipes(2);
    auto zero = c.lead(0);
    auto two = c.send(pipes[1], 2, 1);
    auto other_layer = std::string{layer} != "bn2";
    auto tag = round_tag{layer_hash(layer), 1, other_layer ? 1U : 5U, 1};
    auto one = c.send_tagged(1, tag, 1);
    auto code = other_layer ? errc::wrong_layer : errc::wrong_round;
    for (auto x : {zero(), one(), two()})
      CHECK(x.failed(code, {"layer bn2, round 1", "replica 1",
                            other_layer ? "another layer" : "round 5"}));
    check_serves_again(c);
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "who sends a message for another round or layer gets the "
                  "error once, and is told to register again from then on") {
  for (auto layer : {"bn2", "bn3"}) {
    adder c{system, bn2(), add_up};
    auto pipes = c.pipes(1);
    auto wrong = round_tag{layer_hash(layer), 1, 5, 1};
    auto other_layer = std::string{layer} != "bn2";
    CHECK(c.send_tagged(1, wrong, 1)().failed(other_layer ? errc::wrong_layer
                                                          : errc::wrong_round));
    for (int i = 0; i < 2; ++i)
      CHECK(
          c.send_tagged(1, wrong, 1)().failed(errc::stale, {"register again"}));
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a message of another layer is told so, whatever generation "
                  "its tag names") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(1);
  auto one = c.send_tagged(1, round_tag{layer_hash("bn3"), 7, 1, 1}, 1);
  CHECK(one().failed(errc::wrong_layer, {"layer bn2", "replica 1"}));
  CHECK(c.lead(1)().failed(errc::wrong_layer));
}

TEST_CASE_FIXTURE(system_fixture,
                  "a slave that gives up ends the round with its reason") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(2);
  auto zero = c.lead(0);
  c.settle();
  pipes[0].give_up(c.actor(1), "out of memory");
  CHECK(zero().failed(errc::participant_failed,
                      {"layer bn2", "replica 1 gave up: out of memory"}));
  check_serves_again(c);
}

TEST_CASE_FIXTURE(system_fixture,
                  "who gives up with its message sent ends the round that "
                  "waits for others, and none that was answered") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(2);
  auto one = c.send(pipes[0], 1, 1);
  pipes[0].give_up(c.actor(1), "out of memory");
  CHECK(one().failed(errc::participant_failed, {"round 1", "replica 1"}));
  auto pipe = c.pipe(1);
  check_round(c, pipe);
  pipe.give_up(c.actor(1), "out of memory");
  CHECK(c.lead(0)().failed(errc::participant_failed,
                           {"round 2", "replica 1 gave up: out of memory"}));
}

TEST_CASE_FIXTURE(system_fixture,
                  "a slave's pipe of an earlier generation gives up nothing of "
                  "the next one") {
  adder c{system, bn2(), add_up};
  auto old = c.pipe(1);
  check_round(c, old);
  auto pipe = c.pipe(1);
  old.give_up(c.actor(1), "out of memory");
  check_round(c, pipe);
}

TEST_CASE_FIXTURE(system_fixture,
                  "of two slaves that give up the first one's reason is the "
                  "round's") {
  adder c{system, bn2(), add_up};
  auto pipes = c.pipes(3);
  pipes[0].give_up(c.actor(1), "out of memory");
  pipes[1].give_up(c.actor(2), "tired");
  CHECK(c.send(pipes[2], 3, 1)().failed(errc::participant_failed,
                                        {"replica 1 gave up: out of memory"}));
}

TEST_CASE_FIXTURE(system_fixture,
                  "an exception in the callback is an error for everybody, and "
                  "the master lives on") {
  bool fail = true;
  adder c{system, bn2(), [&](std::span<identified<double>> messages) {
            if (fail)
              throw std::runtime_error{"singular"};
            return add_up(messages);
          }};
  auto pipes = c.pipes(1);
  auto one = c.send(pipes[0], 1, 1);
  CHECK(c.lead(0)().failed(errc::callback_failed, {"layer bn2", "singular"}));
  CHECK(one().failed(errc::callback_failed));
  fail = false;
  check_serves_again(c);
}

TEST_CASE_FIXTURE(system_fixture,
                  "an error without a code that the callback throws is one for "
                  "everybody all the same") {
  adder c{system, bn2(),
          [](std::span<identified<double>>) -> std::vector<identified<double>> {
            throw error{errc::none, "singular"};
          }};
  auto pipes = c.pipes(1);
  auto one = c.send(pipes[0], 1, 1);
  CHECK(c.lead(0)().failed(errc::callback_failed, {"layer bn2", "singular"}));
  CHECK(one().failed(errc::callback_failed));
}

TEST_CASE_FIXTURE(system_fixture,
                  "a callback that leaves out, repeats or makes up an "
                  "identifier is an error for everybody") {
  using replies = std::vector<identified<double>>;
  struct row {
    replies made;
    std::string text;
  };
  for (const auto& [made, text] :
       {row{{{0, 1}}, "no reply for replica 1"},
        row{{{1, 1}, {0, 1}, {1, 1}}, "two replies for replica 1"},
        row{{{0, 1}, {2, 1}}, "a reply for replica 2"}, row{{}, "no reply"}}) {
    adder c{system, bn2(), [made = made](auto) { return made; }};
    auto pipes = c.pipes(1);
    auto one = c.send(pipes[0], 1, 1);
    CHECK(c.lead(0)().failed(errc::invalid_reply, {"layer bn2", text}));
    CHECK(one().failed(errc::invalid_reply, {text}));
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "a master that exits answers everybody, during a round and "
                  "after") {
  for (auto reason :
       {caf::exit_reason::user_shutdown, caf::exit_reason::kill}) {
    adder c{system, bn2(), add_up};
    auto pipes = c.pipes(2);
    auto one = c.send(pipes[0], 1, 1);
    c.settle();
    caf::anon_send_exit(c.master(), reason);
    auto x = one();
    CHECK(x.count == 1);
    CHECK_FALSE(x.value);
    if (reason == caf::exit_reason::user_shutdown)
      CHECK(x.failed(errc::master_down, {"layer bn2"}));
    CHECK(c.send(pipes[1], 2, 1)().count == 1);
    CHECK(c.enlist(1, 1).count == 1);
  }
}

TEST_CASE_FIXTURE(system_fixture,
                  "an actor's pipe, which has no timer, refuses a timeout, to "
                  "wait for nothing, and to give up for nobody") {
  adder c{system, bn2(), add_up};
  auto pipe = c.pipe(1);
  CHECK(outcome_of(pipe.run_slave(1, 1ms)).failed(errc::invalid_argument));
  CHECK(outcome_of(pipe.await_reply()).failed(errc::invalid_argument));
  CHECK(outcome_of(pipe.await_reply(1ms)).failed(errc::invalid_argument));
  CHECK(code_of(pipe.give_up("no memory")) == errc::invalid_argument);
  // Nothing was sent: the round is still its first.
  check_round(c, pipe);
}

TEST_CASE_FIXTURE(system_fixture,
                  "who asks a master that has exited is told so, by its "
                  "replica, whatever it asks") {
  for (auto reason :
       {caf::exit_reason::user_shutdown, caf::exit_reason::kill}) {
    adder c{system, bn2(), add_up};
    auto pipe = c.pipe(1);
    caf::anon_send_exit(c.master(), reason);
    c.actor(0)->wait_for(c.master());
    for (int i = 0; i < 2; ++i) {
      CHECK(c.send(pipe, 1, 1)().failed(errc::master_down,
                                        {"replica 1: the master is down ("}));
      CHECK(c.lead(1)().failed(errc::master_down, {"replica 0"}));
      CHECK(c.enlist(2, 2).failed(errc::master_down, {"replica 2"}));
    }
    outcome<sync_metrics> metrics;
    read_metrics(c.actor(0), c.master())
        .receive([&](sync_metrics& x) { metrics(std::move(x)); },
                 [&](caf::error& x) { metrics(x); });
    CHECK(metrics.failed(errc::master_down, {"the master is down ("}));
  }
}

// -- the end of the system ----------------------------------------------------

TEST_CASE("a system ends at once, however many rounds wait for their "
          "deadline") {
  system_fixture fixture;
  caf::scoped_actor self{fixture.system};
  for (int i = 0; i < 200; ++i) {
    auto master = spawn_sync_master<double, double>(
        fixture.system,
        {.layer = "layer " + std::to_string(i),
         .deadline = std::chrono::hours{1}},
        sync_callback<double, double>{add_up});
    register_slave(self, master, 1)
        .receive([](const slave_ticket&) {},
                 [](const caf::error& reason) { FAIL(describe(reason)); });
    detail::send(self, master, run_master_atom_v, 1.0);
    detail::request(self, master, nr_slaves_atom_v)
        .receive([](std::uint64_t n) { CHECK(n == 1); },
                 [](const caf::error& reason) { FAIL(describe(reason)); });
  }
}
