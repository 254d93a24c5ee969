#include "syncnorm/config.hpp"
#include "syncnorm/batch_norm_participant.hpp"
#include "syncnorm/batch_norm_stage.hpp"
#include "tests/actors/collective.hpp"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

namespace {

/// An application's configuration with our group in it.
struct app_config : config {
  explicit app_config(std::vector<std::string> command_line,
                      const std::string& file = "") {
    add_config_options(custom_options_);
    std::istringstream in{file};
    refused = parse(std::move(command_line), in);
  }

  caf::error refused;
};

/// The text with which the group is refused; empty if it is not.
std::string refusal(const caf::actor_system_config& cfg) {
  try {
    std::ignore = read_defaults(cfg);
  } catch (const error& x) {
    CHECK(x.code() == errc::invalid_argument);
    return x.what();
  }
  return "";
}

struct fixture {
  int types = init_types();
};

using adder = collective<double, double>;

} // namespace

TEST_CASE_FIXTURE(fixture, "without configuration a round has 60 s and fails "
                           "for all") {
  app_config cfg{{}};
  auto defaults = read_defaults(cfg);
  CHECK(defaults.deadline == caf::timespan{60s});
  CHECK(defaults.policy == failure_policy::fail_round);
  CHECK(defaults.fan_in == 16);
  CHECK(defaults.max_message == 1'073'741'824);
  CHECK(defaults.log == log_level::info);
}

TEST_CASE_FIXTURE(fixture, "the command line sets the group") {
  app_config cfg{{"--syncnorm.deadline=1500ms",
                  "--syncnorm.failure-policy=continue-with-survivors",
                  "--syncnorm.fan-in=8", "--syncnorm.log-level=debug",
                  "--syncnorm.max-message=65536"}};
  CHECK(cfg.refused == caf::none);
  auto defaults = read_defaults(cfg);
  CHECK(defaults.deadline == caf::timespan{1500ms});
  CHECK(defaults.policy == failure_policy::continue_with_survivors);
  CHECK(defaults.fan_in == 8);
  CHECK(defaults.max_message == 65'536);
  CHECK(defaults.log == log_level::debug);
}

TEST_CASE_FIXTURE(fixture, "the configuration file sets the group, and the "
                           "command line overrides it") {
  app_config cfg{{"--syncnorm.deadline=2s"},
                 "syncnorm {\n  deadline = 7s\n  log-level = \"quiet\"\n}\n"};
  CHECK(cfg.refused == caf::none);
  auto defaults = read_defaults(cfg);
  CHECK(defaults.deadline == caf::timespan{2s});
  CHECK(defaults.log == log_level::quiet);
}

TEST_CASE_FIXTURE(fixture,
                  "a bad value is refused with the option's name, what "
                  "was expected and what was found") {
  for (const std::string deadline : {"0s", "-3s"})
    CHECK(refusal(app_config{{"--syncnorm.deadline=" + deadline}})
              .find("configuration: syncnorm.deadline: expected a duration "
                    "longer than zero, and of a year at most, such as 30s, "
                    "got "
                    + deadline)
          != std::string::npos);
  CHECK(refusal(app_config{{"--syncnorm.failure-policy=retry"}})
            .find("syncnorm.failure-policy: expected one of fail-round, "
                  "continue-with-survivors, got ")
        != std::string::npos);
  CHECK(refusal(app_config{{"--syncnorm.fan-in=1"}})
            .find("syncnorm.fan-in: expected an integer of 2 or more, got 1")
        != std::string::npos);
  CHECK(refusal(app_config{{"--syncnorm.max-message=65535"}})
            .find("syncnorm.max-message: expected an integer of 65536 or more, "
                  "got 65535")
        != std::string::npos);
  CHECK(refusal(app_config{{"--syncnorm.log-level=loud"}})
            .find("expected one of quiet, error, warning, info, debug, got ")
        != std::string::npos);
}

TEST_CASE_FIXTURE(fixture, "what is no duration is refused: by CAF 0.17's "
                           "parser, or by who reads it") {
  app_config cfg{{"--syncnorm.deadline=soon"}};
  if (detail::caf_line == 0)
    CHECK(cfg.refused != caf::none);
  else
    CHECK(refusal(cfg).find("syncnorm.deadline: expected a duration longer "
                            "than zero")
          != std::string::npos);
}

TEST_CASE_FIXTURE(fixture,
                  "an option that the group does not have is refused") {
  CHECK(refusal(app_config{{}, "syncnorm {\n  dedline = 7s\n}\n"})
        == "configuration: syncnorm.dedline: there is no such option, expected "
           "one of deadline, failure-policy, fan-in, log-level, "
           "max-message");
}

TEST_CASE_FIXTURE(fixture, "a value of another type in a configuration file is "
                           "refused") {
  for (const std::string line : {"deadline = 30", "fan-in = \"many\"",
                                 "failure-policy = 3", "log-level = true"}) {
    CAPTURE(line);
    app_config cfg{{}, "syncnorm {\n  " + line + "\n}\n"};
    CHECK(refusal(cfg).find(": expected ") != std::string::npos);
  }
}

TEST_CASE_FIXTURE(fixture, "a value of another type is refused, also where the "
                           "application has not added the group") {
  config cfg;
  caf::put(cfg.content, "syncnorm.deadline", true);
  CHECK(refusal(cfg)
        == "configuration: syncnorm.deadline: expected a duration longer than "
           "zero, and of a year at most, such as 30s, got true");
}

TEST_CASE_FIXTURE(fixture, "a master takes from the configuration what its "
                           "options leave open, and nothing else") {
  app_config cfg{{"--syncnorm.deadline=7s",
                  "--syncnorm.failure-policy=continue-with-survivors"}};
  caf::actor_system system{cfg};
  adder open{system, {.layer = "bn1"}, add_up};
  CHECK(open.enlist(1, 1).value->deadline == caf::timespan{7s});
  adder set{system, {.layer = "bn1", .deadline = 20s}, add_up};
  CHECK(set.enlist(1, 1).value->deadline == caf::timespan{20s});
  adder longest{system, {.layer = "bn1", .deadline = max_deadline}, add_up};
  CHECK(longest.enlist(1, 1).value->deadline == max_deadline);

  auto resolved = resolve({.policy = failure_policy::fail_round}, cfg);
  CHECK(resolved.deadline == caf::timespan{7s});
  CHECK(resolved.policy == failure_policy::fail_round);
}

TEST_CASE_FIXTURE(fixture, "the configured policy decides what a death does") {
  auto survivors = [](const char* policy) {
    app_config cfg{{std::string{"--syncnorm.failure-policy="} + policy}};
    caf::actor_system system{cfg};
    adder c{system, {.layer = "bn1"}, add_up};
    auto pipes = c.pipes(2);
    auto first = c.send(pipes[0], 1, 1.0);
    c.kill(2);
    auto owner = c.lead(10.0)();
    std::ignore = first();
    return owner.value;
  };
  CHECK(survivors("continue-with-survivors") == 11.0);
  CHECK(survivors("fail-round") == std::nullopt);
}

TEST_CASE_FIXTURE(fixture, "a layer's round fails for all whatever policy is "
                           "configured") {
  app_config cfg{{"--syncnorm.failure-policy=continue-with-survivors"}};
  caf::actor_system system{cfg};
  batch_norm_participant owner{system, {.layer = "bn1"}, 3};
  batch_norm_participant well{system, owner.master(), 1};
  batch_norm_participant ill{system, owner.master(), 2};
  well.begin({});
  ill.give_up("out of data");
  for (auto* x : {&owner, &well})
    try {
      if (x == &owner)
        owner.begin({});
      std::ignore = x->end();
      FAIL_CHECK("a reply");
    } catch (const error& reason) {
      CHECK(reason.code() == errc::participant_failed);
    }
}

TEST_CASE_FIXTURE(fixture,
                  "a layer's master spawned by itself fails its rounds "
                  "for all, unless its own options say otherwise") {
  app_config cfg{{"--syncnorm.failure-policy=continue-with-survivors"}};
  caf::actor_system system{cfg};
  auto goes_on = [&](std::optional<failure_policy> policy) {
    auto master =
        spawn_batch_norm_master(system, {.layer = "bn1", .policy = policy}, 2);
    caf::scoped_actor self{system};
    std::optional<bool> result;
    register_slave(self, master, 1)
        .receive([&](const slave_ticket& x) { result = x.survivors; },
                 [](const caf::error& e) { FAIL(describe(e)); });
    return result;
  };
  CHECK(goes_on(std::nullopt) == false);
  CHECK(goes_on(failure_policy::continue_with_survivors) == true);
}

namespace {

using stages = std::vector<std::unique_ptr<batch_norm_stage>>;

stages make_stages(caf::actor_system& system, std::size_t count) {
  stages result;
  for (std::size_t r = 0; r < count; ++r)
    result.push_back(std::make_unique<batch_norm_stage>(
        system, batch_norm_options{.name = "bn1", .channels = 1}));
  execute_replication_callbacks(result);
  return result;
}

} // namespace

TEST_CASE_FIXTURE(fixture, "slave actors have the configured deadline and "
                           "fan-in") {
  app_config cfg{{"--syncnorm.deadline=1ms", "--syncnorm.fan-in=2"}};
  caf::actor_system system{cfg};
  caf::scoped_actor self{system};
  auto eight = make_stages(system, 8);
  detail::request(self, eight[0]->slave(), get_metrics_atom_v)
      // Its owner and two relays, not eight copies.
      .receive([](const sync_metrics& x) { CHECK(x.participants == 3); },
               [](const caf::error& e) { FAIL(describe(e)); });
  release_replicas(eight);
  auto two = make_stages(system, 2);
  tensor_memory x{make_layout(dtype::float32, std::array{2L, 1L})};
  // The other one is not asked.
  detail::request(self, two[0]->slave(), forward_atom_v, x.share())
      .receive([](const shared_tensor&, std::uint64_t) { FAIL("an answer"); },
               [](const caf::error& e) {
                 CHECK(code_of(e) == errc::deadline_exceeded);
               });
  release_replicas(two);
}

TEST_CASE_FIXTURE(fixture, "a bad configuration is thrown where a master is "
                           "spawned") {
  app_config cfg{{"--syncnorm.deadline=0s"}};
  caf::actor_system system{cfg};
  CHECK_THROWS_WITH_AS((adder{system, {.layer = "bn1"}, add_up}),
                       doctest::Contains("syncnorm.deadline"), error);
  CHECK_THROWS_AS((batch_norm_participant{system, {.layer = "bn1"}, 2}), error);
}

TEST_CASE_FIXTURE(fixture, "a participant refuses another number of "
                           "participants than that of its copies, one that is "
                           "alone, too") {
  app_config cfg{{}};
  caf::actor_system system{cfg};
  for (std::int64_t copies : {1, 2})
    CHECK_THROWS_AS((batch_norm_participant{
                        system, {.layer = "bn1", .participants = 3}, copies}),
                    error);
}
