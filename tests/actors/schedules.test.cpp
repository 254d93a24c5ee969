#include "tests/actors/fault_rounds.hpp"
#include "tests/actors/simulated_tree.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

// Trees whose actors take their messages in any order, with faults at any
// moment, on nodes that lose each other: a run takes a millisecond, so that
// many more orders are tried than threads would ever have.

namespace {

/// What one seed decides beside the shape of the tree.
struct schedule_kind {
  std::int64_t nodes;
  std::int64_t replicas;
  failure_policy policy;
  /// Whether timers ring at any moment, as where messages take long.
  bool rings_early;
  /// Whether a replica that was killed has a successor at once.
  bool replaces_at_once;

  schedule_kind(std::mt19937& random, std::int64_t most_nodes)
      : nodes{most_nodes == 1 ? 1 : 2 + below(random, most_nodes - 1)},
        replicas{2 + below(random, below(random, 3) == 0 ? 11 : 5)},
        policy{below(random, 3) == 0 ? failure_policy::continue_with_survivors
                                     : failure_policy::fail_round},
        rings_early{below(random, 4) == 0},
        replaces_at_once{below(random, 2) == 0} {}
};

class schedule_run {
public:
  schedule_run(simulated_system& here, std::uint32_t seed,
               const schedule_kind& kind)
      : kind_{kind},
        tree_{here,
              seed,
              kind.nodes,
              {.layer = "bn1",
               .deadline = 10s,
               .policy = kind.policy,
               .participants = kind.replicas}} {}

  /// With faults, then without any, and so on; in the end the master dies.
  /// @returns what was wrong, or empty.
  std::string run() {
    for (int i = 0; i < 4; ++i) {
      auto misdeeds = static_cast<int>(tree_.below(5));
      auto wrong = play(misdeeds, static_cast<int>(tree_.below(4)));
      if (wrong.empty())
        wrong = play_without_faults();
      if (!wrong.empty())
        return wrong + ": " + tree_.text();
    }
    return lose_master();
  }

private:
  std::string play(int misdeeds, int blows) {
    tree_.go_on(3, misdeeds);
    if (auto stuck = run_actors(blows); !stuck.empty())
      return stuck;
    return what_is_wrong();
  }

  /// All that is out of order is replaced; then all get on, without the clock.
  std::string play_without_faults() {
    tree_.repair();
    std::vector<std::size_t> before;
    for (std::int64_t i = 0; i < kind_.replicas; ++i)
      before.push_back(tree_.record(i).attempts.size());
    tree_.go_on(3, 0);
    if (!kind_.rings_early) {
      if (auto wrong = run_until_done(); !wrong.empty())
        return wrong;
      if (auto wrong = what_is_wrong_since(before); !wrong.empty())
        return wrong;
    }
    return play(0, 0);
  }

  /// All are told at once.
  std::string lose_master() {
    tree_.go_on(3, 0);
    for (auto steps = tree_.below(100); steps > 0 && step(); --steps)
      continue;
    tree_.kill_master();
    while (step())
      continue;
    return tree_.is_waiting()
               ? "somebody waits for a master that has died: " + tree_.text()
               : "";
  }

  /// Until nobody waits any more.
  std::string run_actors(int blows) {
    constexpr int many = 200'000;
    auto retries = 0;
    for (int i = 0; i < many; ++i) {
      if (blows > 0 && tree_.below(60) == 0) {
        --blows;
        strike();
      }
      if (kind_.rings_early && tree_.below(100) == 0)
        tree_.wait();
      if (step() || (++retries <= 5 && tree_.retry()))
        continue;
      if (!tree_.is_waiting())
        return "";
      if (auto wrong = what_is_wrong_with_waiting(); !wrong.empty())
        return wrong;
      retries = 0;
      if (!tree_.wait())
        return "somebody waits for ever";
    }
    return "no end";
  }

  /// Nobody has a message any more: all wait for the clock.
  std::string what_is_wrong_with_waiting() const {
    if (!kind_.rings_early && tree_.is_whole() && !tree_.is_done())
      return "somebody waits for the clock, and all are there";
    return tree_.is_waiting_for_lost() ? "somebody waits for who is lost" : "";
  }

  std::string run_until_done() {
    for (auto retries = 0; step() || (++retries <= 5 && tree_.retry());)
      continue;
    // Whoever has tried too often, and stopped, has not got on either.
    for (std::int64_t i = 0; i < kind_.replicas; ++i)
      if (const auto& x = tree_.record(i); x.values < x.goal)
        return "replica " + std::to_string(i) + " does not get on";
    return "";
  }

  bool step() {
    if (tree_.below(20) == 0)
      tree_.retry();
    return tree_.step();
  }

  void strike() {
    switch (tree_.below(kind_.nodes == 1 ? 4 : 8)) {
    case 0:
      return tree_.kill_relay();
    case 1:
    case 2:
    case 3:
      return tree_.kill_replica(kind_.replaces_at_once);
    default:
      return tree_.cut();
    }
  }

  // -- what must be so --------------------------------------------------------

  std::string what_is_wrong() const {
    for (std::int64_t i = 0; i < kind_.replicas; ++i) {
      const auto& attempts = tree_.record(i).attempts;
      for (std::size_t k = 0; k < attempts.size(); ++k) {
        const auto& got = attempts[k].got;
        if (got.count > 1)
          return "two outcomes of one message";
        auto wrong = got.value ? what_is_wrong_with(*got.value, i, k) : "";
        if (!wrong.empty())
          return "replica " + std::to_string(i) + ", message "
                 + std::to_string(k + 1) + ": " + wrong;
      }
    }
    return "";
  }

  /// With the value that the replica has for its message.
  std::string what_is_wrong_with(const block& value, std::int64_t replica,
                                 std::size_t message) const {
    for (std::int64_t i = 0; i < kind_.replicas; ++i) {
      auto number = value[static_cast<std::size_t>(i)];
      if (i == replica && number != static_cast<double>(message + 1))
        return "a value without it";
      if (number == 0) {
        if (kind_.policy == failure_policy::fail_round)
          return "a value without everybody";
        continue;
      }
      const auto& other =
          tree_.record(i).attempts[static_cast<std::size_t>(number) - 1];
      if (other.got.value && *other.got.value != value)
        return "a message in two values";
      if (other.got.count != 0 && !other.got.value && shall_have(i, other))
        return "a value that replica " + std::to_string(i)
               + " has not: " + other.got.text();
    }
    return "";
  }

  /// Whether all who can be reached have what one has.
  [[nodiscard]] bool shall_have(std::int64_t replica, const attempt& x) const {
    // Who replaces a replica at once may end the round for those behind its
    // relay; timers that ring before their time, for anybody.
    return kind_.policy == failure_policy::fail_round && !kind_.rings_early
           && x.is_honest && !x.is_orphan && !tree_.was_cut_off(replica)
           && !(kind_.replaces_at_once && tree_.is_behind_relay(replica));
  }

  /// Each may have to hear of what was before, and be interrupted by those who
  /// register anew.
  std::string
  what_is_wrong_since(const std::vector<std::size_t>& before) const {
    for (std::int64_t i = 0; i < kind_.replicas; ++i) {
      const auto& attempts = tree_.record(i).attempts;
      auto told = 0;
      for (auto k = before[static_cast<std::size_t>(i)]; k < attempts.size();
           ++k)
        if (const auto& got = attempts[k].got;
            got.count != 0 && !got.value && code_of(got.error) != errc::stale
            && ++told > 1)
          return "replica " + std::to_string(i)
                 + " has an error without a fault: " + got.text();
    }
    return "";
  }

  schedule_kind kind_;
  simulated_tree tree_;
};

void check_schedules(simulated_system& here, std::int64_t most_nodes) {
  check_seeds(schedules(), [&](std::uint32_t seed) {
    std::mt19937 random{seed};
    return schedule_run{here, seed, schedule_kind{random, most_nodes}}.run();
  });
}

} // namespace

TEST_CASE_FIXTURE(simulated_system,
                  "in whatever order actors take their messages, and whoever "
                  "is at fault at what moment, nobody waits for ever, all "
                  "agree, and all get on when the faults are mended") {
  check_schedules(*this, 1);
}

TEST_CASE_FIXTURE(simulated_system, "so it is on nodes that lose each other") {
  check_schedules(*this, 3);
}
