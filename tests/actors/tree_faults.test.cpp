#include "tests/actors/fault_rounds.hpp"
#include "tests/actors/random_tree.hpp"
#include "tests/actors/two_systems.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;
using namespace std::chrono_literals;

// Trees of any shape in which anybody may be at fault, several at a time.

namespace {

/// What a replica does in a round.
enum class deed {
  sends,
  dies,
  sends_and_dies,
  gives_up,
  sends_and_gives_up,
  sends_twice,
  sends_for_another_round,
  sends_another_size,
  comes_late
};

/// Of a replica: a bit of its own, so that a sum says who is in it.
double bit_of(std::int64_t replica) {
  return static_cast<double>(std::int64_t{1} << replica);
}

bool is_in(std::int64_t replica, double sum) {
  return (static_cast<std::int64_t>(sum) >> replica) % 2 != 0;
}

/// The rounds of one tree, with one outcome for each message.
class fault_run {
public:
  /// @param other  another node, or null.
  fault_run(caf::actor_system& system, caf::actor_system* other,
            std::uint32_t seed)
      : random_{seed},
        is_patient_{random_() % 4 != 0},
        options_{.layer = "bn1",
                 // Of an hour: that a round ends without it.
                 .deadline = is_patient_ ? caf::timespan{1h}
                             : other     ? 300ms
                                         : 30ms,
                 .policy = random_() % 2 == 0
                               ? failure_policy::fail_round
                               : failure_policy::continue_with_survivors},
        tree_{system, other, random_, options_} {}

  /// Generations, of up to two rounds without a fault, one with any, and, with
  /// survivors, one of those.
  /// @returns what was wrong, or empty.
  std::string run() {
    for (int generation = 0; generation < 6; ++generation) {
      tree_.enlist_all();
      auto faultless = tree_.below(3);
      for (round_ = 1; round_ <= faultless; ++round_)
        if (auto wrong = play(false); !wrong.empty())
          return wrong;
        else if (!all_went_well())
          break;
      if (round_ <= faultless)
        continue;
      auto wrong = play(true);
      if (wrong.empty() && goes_on())
        wrong = play_on();
      if (!wrong.empty())
        return wrong;
    }
    return "";
  }

private:
  struct message {
    std::int64_t replica;
    std::function<outcome<block>()> wait;
    outcome<block> got{};
  };

  std::string play(bool with_faults) {
    messages_.clear();
    log_.clear();
    deeds_.assign(static_cast<std::size_t>(tree_.replicas()), deed::sends);
    // Below 0: a relay dies.
    std::vector<std::int64_t> steps;
    for (std::int64_t i = 0; i < tree_.replicas(); ++i)
      steps.push_back(i);
    if (with_faults)
      choose_faults(steps);
    std::ranges::shuffle(steps, random_);
    for (auto i : steps)
      step(i);
    for (auto& x : messages_)
      x.got = x.wait();
    hear_of_failure();
    auto wrong = what_is_wrong();
    return wrong.empty() ? "" : wrong + report();
  }

  /// Whether the next round is of all who are not at fault.
  bool goes_on() const {
    return options_.policy == failure_policy::continue_with_survivors
           && is_patient_ && is_honest(0) && !has(deed::sends_another_size);
  }

  /// All who are alive send; who was at fault is not in the sum.
  std::string play_on() {
    messages_.clear();
    ++round_;
    double expected = 0;
    for (std::int64_t i = 0; i < tree_.replicas(); ++i) {
      if (is_survivor(i))
        expected += bit_of(i);
      if (deed_of(i) != deed::dies && deed_of(i) != deed::sends_and_dies)
        send(i);
    }
    for (auto& x : messages_)
      x.got = x.wait();
    for (const auto& x : messages_)
      if (is_survivor(x.replica) ? x.got.value != block{expected}
                                 : x.got.value.has_value())
        return "not the survivors alone" + report();
    return "";
  }

  void choose_faults(std::vector<std::int64_t>& steps) {
    auto share = 1 + tree_.below(4);
    for (std::int64_t i = 0; i < tree_.replicas(); ++i)
      if (tree_.below(10) < share)
        deeds_[static_cast<std::size_t>(i)] = choose_fault(i);
    for (std::int64_t i = 0; i < tree_.relays(); ++i)
      if (tree_.below(12) == 0)
        steps.push_back(-1 - i);
  }

  deed choose_fault(std::int64_t replica) {
    auto result = static_cast<deed>(1 + tree_.below(is_patient_ ? 7 : 8));
    if (replica != 0)
      return result;
    // An owner's message names no round. Who has not led is not known.
    if (result == deed::sends_twice || result == deed::sends_for_another_round
        || (result == deed::dies && !has_led_))
      return deed::gives_up;
    return result;
  }

  void step(std::int64_t i) {
    log_ += " " + std::to_string(i) + ":";
    if (i < 0) {
      log_ += "killed";
      return tree_.kill_relay(-1 - i);
    }
    auto what = deed_of(i);
    log_ += std::to_string(static_cast<int>(what));
    if (i == 0)
      has_led_ = what != deed::dies && what != deed::sends_and_dies
                 && (has_led_ || what != deed::gives_up);
    act(i, what);
  }

  void act(std::int64_t i, deed what) {
    switch (what) {
    case deed::sends:
      return send(i);
    case deed::dies:
      return tree_.kill(i);
    case deed::sends_and_dies:
      send(i);
      messages_.pop_back();
      if (i == 0)
        settle();
      return tree_.kill(i);
    case deed::gives_up:
      return give_up(i);
    case deed::sends_and_gives_up:
      send(i);
      return give_up(i);
    case deed::sends_twice:
      send(i);
      return send_for(i, round_);
    case deed::sends_for_another_round:
      return send_for(i, round_ + 5);
    case deed::sends_another_size:
      messages_.push_back({i, tree_.send(i, block{1, 2})});
      return;
    case deed::comes_late:
      return;
    }
  }

  void send(std::int64_t i) {
    messages_.push_back({i, tree_.send(i, block{bit_of(i)})});
  }

  void send_for(std::int64_t i, std::uint64_t round) {
    round_tag tag{layer_hash("bn1"), tree_.pipe(i).generation(), round, i};
    messages_.push_back({i, random_tree::later(detail::request(
                                tree_.actor(i), tree_.home(i), run_slave_atom_v,
                                tag, block{bit_of(i)}))});
  }

  void give_up(std::int64_t i) {
    if (i != 0)
      return tree_.pipe(i).give_up(tree_.actor(i), "of no use");
    detail::send(tree_.actor(0), tree_.master(), give_up_atom_v, round_tag{},
                 std::string{"of no use"});
  }

  /// Returns when the master has the owner's message, and knows it.
  void settle() {
    detail::request(tree_.actor(0), tree_.master(), nr_slaves_atom_v)
        .receive([](std::uint64_t) {},
                 [](const caf::error& x) { FAIL(describe(x)); });
  }

  /// Who has sent nothing does so now: it is told what has happened.
  void hear_of_failure() {
    for (std::int64_t i = 1; i < tree_.replicas(); ++i) {
      auto what = deed_of(i);
      if (tree_.is_cut_off(i)
          || (what != deed::gives_up && what != deed::comes_late))
        continue;
      send(i);
      messages_.back().got = messages_.back().wait();
    }
  }

  // -- what must be so --------------------------------------------------------

  std::string what_is_wrong() const {
    for (const auto& x : messages_)
      if (x.got.count != 1)
        return "not one outcome";
    if (auto wrong = what_is_wrong_with_values(); !wrong.empty())
      return wrong;
    return options_.policy == failure_policy::fail_round
               ? what_is_wrong_with_failures()
               : what_is_wrong_with_survivors();
  }

  std::string what_is_wrong_with_values() const {
    std::set<double> sums;
    for (const auto& x : messages_)
      if (is_honest(x.replica) && x.got.value)
        sums.insert((*x.got.value)[0]);
    if (sums.size() > 1)
      return "two values";
    if (sums.empty() && is_patient_ && nr_faults() == 0)
      return "no value, and no fault";
    return "";
  }

  /// All have the value, or none has.
  std::string what_is_wrong_with_failures() const {
    std::set<std::string> errors;
    auto values = 0;
    for (const auto& x : messages_) {
      if (!is_honest(x.replica))
        continue;
      if (!x.got.value)
        errors.insert(x.got.text());
      else if (++values; (*x.got.value)[0] != bit_of(tree_.replicas()) - 1)
        return "a value without everybody";
    }
    // A relay that dies may have had the answer, and not handed it on.
    if (tree_.nr_dead_relays() != 0)
      return "";
    if (values > 0 && !errors.empty())
      return "values and errors";
    return errors.size() > 1 && nr_faults() == 1 ? "two errors of one fault"
                                                 : "";
  }

  /// They have the value and are in it; what a callback throws ends the round
  /// for all, and so does the owner.
  std::string what_is_wrong_with_survivors() const {
    if (!goes_on())
      return "";
    std::optional<double> sum;
    for (const auto& x : messages_) {
      if (!is_survivor(x.replica))
        continue;
      if (!x.got.value)
        return "a survivor has an error";
      sum = (*x.got.value)[0];
    }
    for (std::int64_t i = 0; i < tree_.replicas(); ++i)
      if (is_survivor(i) && !is_in(i, sum.value()))
        return "a value without a survivor";
    return "";
  }

  bool all_went_well() const {
    return std::ranges::all_of(messages_,
                               [](const auto& x) { return !!x.got.value; });
  }

  deed deed_of(std::int64_t replica) const {
    return deeds_[static_cast<std::size_t>(replica)];
  }

  bool is_honest(std::int64_t replica) const {
    return deed_of(replica) == deed::sends;
  }

  /// Not at fault, nor behind a relay that is.
  bool is_survivor(std::int64_t replica) const {
    return is_honest(replica) && !tree_.is_cut_off(replica);
  }

  bool has(deed what) const {
    return std::ranges::find(deeds_, what) != deeds_.end();
  }

  std::int64_t nr_faults() const {
    return tree_.nr_dead_relays() + std::ssize(deeds_)
           - std::ranges::count(deeds_, deed::sends);
  }

  std::string report() const {
    auto result = " in round " + std::to_string(round_) + ", " + tree_.text()
                  + "; each one's deed in order:" + log_;
    for (const auto& x : messages_)
      result +=
          "\n  " + std::to_string(x.replica) + " has "
          + (x.got.value ? std::to_string((*x.got.value)[0]) : x.got.text());
    return result;
  }

  std::mt19937 random_;
  bool is_patient_;
  sync_options options_;
  random_tree tree_;
  std::vector<deed> deeds_;
  std::vector<message> messages_;
  std::string log_;
  std::int64_t round_ = 0;
  /// Whether the owner that lives now has sent a message.
  bool has_led_ = false;
};

void check_trees(caf::actor_system& system, caf::actor_system* other,
                 int trees) {
  check_seeds(trees, [&](std::uint32_t seed) {
    return fault_run{system, other, seed}.run();
  });
}

} // namespace

TEST_CASE_FIXTURE(system_fixture,
                  "in a tree of any shape, whoever is at fault, and however "
                  "many, all others get one outcome a round: the same value, "
                  "or none of them has one") {
  check_trees(system, nullptr, fault_rounds() / 20);
}

TEST_CASE_FIXTURE(two_systems, "so it is in a tree over two nodes") {
  check_trees(system, &other, fault_rounds() / 100);
}
