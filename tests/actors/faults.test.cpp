#include "tests/actors/fault_participant.hpp"
#include "tests/actors/fault_rounds.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// Participants 1 to `slaves` and the owner, one of whom is at fault in every
/// round. A generation lasts until a round has failed.
class fault_run {
public:
  fault_run(caf::actor_system& system, failure_policy policy)
      : system_{system},
        master_{spawn_sync_master<double, double>(
            system,
            {.layer = "bn2", .deadline = fault_deadline, .policy = policy},
            add_up)} {
    for (int i = 0; i <= slaves; ++i)
      add(i);
  }

  ~fault_run() {
    for (auto& x : participants_)
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(master_, caf::exit_reason::user_shutdown);
  }

  /// Runs one round in which `culprit` misbehaves; returns how many outcomes
  /// were missing, doubled or senseless.
  int round(int culprit, fault what) {
    int wrong = enlist();
    std::vector<report_ptr> reports;
    for (int i = 0; i <= slaves; ++i)
      reports.push_back(play(i, i == culprit ? what : fault::none));
    for (int i = 0; i <= slaves; ++i) {
      auto seen = *reports[i]->get();
      auto expected = i != culprit           ? 1
                      : what == fault::twice ? 2
                      : what == fault::none  ? 1
                      : what == fault::late  ? 1
                                             : 0;
      wrong += seen.outcomes != expected;
      wrong += i != culprit && seen.outcomes == 1 && seen.value == seen.failed;
    }
    if (what == fault::dies || what == fault::throws)
      replace(culprit);
    return wrong;
  }

private:
  static constexpr int slaves = 3;

  void add(int identifier) {
    auto at = participants_.begin() + identifier;
    participants_.insert(at,
                         system_.spawn<fault_participant>(master_, identifier));
  }

  void replace(int identifier) {
    participants_.erase(participants_.begin() + identifier);
    add(identifier);
  }

  int enlist() {
    int wrong = 0;
    for (int i = 1; i <= slaves; ++i) {
      auto done = std::make_shared<future_result<bool>>();
      detail::anon_send(participants_[i], enlist_atom_v,
                        detail::make_reply_slot(done));
      wrong += !*done->get();
    }
    return wrong;
  }

  report_ptr play(int identifier, fault what) {
    auto report = std::make_shared<future_result<outcome_report>>();
    detail::anon_send(participants_[identifier], play_atom_v,
                      static_cast<int>(what), detail::make_reply_slot(report));
    return report;
  }

  caf::actor_system& system_;
  sync_master_actor<double, double> master_;
  std::vector<caf::actor> participants_;
};

} // namespace

TEST_CASE_FIXTURE(system_fixture,
                  "whoever dies, throws, skips, comes twice or late: every "
                  "other participant gets exactly one outcome a round") {
  for (auto policy :
       {failure_policy::fail_round, failure_policy::continue_with_survivors}) {
    fault_run run{system, policy};
    std::mt19937 random{20240607};
    std::uniform_int_distribution<int> who{0, 3};
    std::uniform_int_distribution<int> what{0, fault_count - 1};
    int wrong = 0;
    for (int i = 0; i < fault_rounds() / 2; ++i)
      wrong += run.round(who(random), static_cast<fault>(what(random)));
    CHECK(wrong == 0);
  }
}
