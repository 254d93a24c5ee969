#include "tests/actors/participants.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// A million, unless the environment asks for fewer: the sanitizers make each
/// round some twenty times slower.
std::int64_t rounds_to_run() {
  const auto* text = std::getenv("SYNCNORM_TEST_ROUNDS");
  return text ? std::stoll(text) : 1'000'000;
}

} // namespace

TEST_CASE_FIXTURE(system_fixture,
                  "a million rounds follow each other without a pause, with 2, "
                  "3, 4 and 8 participants") {
  for (int participants : {2, 3, 4, 8}) {
    auto master =
        spawn_sync_master<double, double>(system, {.layer = "bn1"}, add_up);
    // Each sends identifier * round: a message of another round shows.
    auto scale = participants * (participants - 1) / 2;
    auto results = run_participants(
        system, master, participants, rounds_to_run(),
        [](std::int64_t identifier, std::int64_t round) {
          return static_cast<double>(identifier * round);
        },
        [scale](std::int64_t round, double reply) {
          return reply == static_cast<double>(scale * round);
        });
    for (const auto& x : results) {
      CHECK(describe(x.error) == describe(caf::error{}));
      CHECK(x.rounds == rounds_to_run());
      CHECK(x.wrong == 0);
    }
    caf::anon_send_exit(master, caf::exit_reason::user_shutdown);
  }
}
