#pragma once

#include "trainer/failure.hpp"
#include "trainer/plan/process_tree.hpp"
#include "trainer/run/gather.hpp"
#include "trainer/run/messages.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::train {

/// A replica that is at fault, and why.
struct culprit {
  replica_actor who;
  std::string why;
};

/// A replica answered with an error or did not answer.
class replica_failure : public failure {
public:
  explicit replica_failure(const std::string& what,
                           std::vector<culprit> culprits = {},
                           std::optional<step_report> leader = std::nullopt)
      : failure{what},
        culprits_{std::move(culprits)},
        leader_{leader} {}

  /// The replicas whose own fault it is; empty if that is unknown.
  [[nodiscard]] const std::vector<culprit>& culprits() const noexcept {
    return culprits_;
  }

  /// If a step failed, replica 0's report: with it, the step has been done, and
  /// replicas that have not done it are behind. Without it, replica 0 is as it
  /// was before.
  [[nodiscard]] const std::optional<step_report>& leader() const noexcept {
    return leader_;
  }

private:
  std::vector<culprit> culprits_;
  std::optional<step_report> leader_;
};

/// The replicas of a run as the trainer addresses them: one request to each,
/// then all answers. They end with this object.
class replica_group {
public:
  /// @param deadline how long a replica may be silent after another has failed,
  ///                 or when it is asked whether it is there; ten times that,
  ///                 after another has answered, or for what needs no long
  ///                 computing.
  /// @param fan_in   see `plan_process_tree`.
  replica_group(caf::actor_system& system, std::vector<replica_actor> members,
                std::chrono::nanoseconds deadline = std::chrono::seconds{60},
                std::int64_t fan_in = 16);
  replica_group(const replica_group&) = delete;
  replica_group& operator=(const replica_group&) = delete;
  ~replica_group();

  [[nodiscard]] std::size_t size() const noexcept {
    return members_.size();
  }

  /// Replaces the members; the first one must stay the first.
  void replace(std::vector<replica_actor> members);

  // All of these throw `replica_failure` with the text of the replica at fault
  // if a replica answers with an error.

  /// Makes the replicas take part in the same rounds: to be called before the
  /// first step, after `replace` and after a failed step.
  /// @returns how many messages per round the masters say they get; 0 if there
  ///          are no masters.
  std::uint64_t assemble();

  /// Makes all replicas equal to replica 0.
  void level();

  /// Has every replica do one step. The next one may be begun before this one
  /// has ended: a replica continues with it without waiting for anybody, and
  /// refuses it if the one before has failed.
  void begin_step(const step_plan& plan);

  /// Waits for the step that was begun first; returns the reports in the
  /// replicas' order.
  std::vector<step_report> end_step();

  /// Whether a step was begun and has not ended.
  [[nodiscard]] bool has_begun() const noexcept {
    return !steps_.empty();
  }

  /// Evaluates the held-out samples [0, samples) on the first `replicas`
  /// replicas.
  evaluation evaluate(std::uint64_t samples, std::size_t replicas);

  /// @throws failure also if two replicas have different hashes.
  void require_same_weights();

  /// Returns the state of replica 0.
  /// @throws failure also if replica 0 may be in the middle of a step.
  model_state state();

  /// Has every replica continue from `state`.
  void assume(const model_state& state);

  /// Has replica 0 continue from `state`; `level` gives it to the others.
  void lead_with(const model_state& state);

  /// What each replica answers when asked whether it is there: nothing, why its
  /// messages do not get to the process above it, or an empty text.
  std::vector<std::optional<std::string>> who_is_there();

private:
  [[nodiscard]] std::uint64_t participants_of(const lineup& leader);

  /// Tells each replica how many share its machine.
  void settle();

  /// Connects the processes of `tree` with those above them.
  /// @param firsts the first replica of each process.
  void connect(const process_tree& tree,
               const std::vector<replica_actor>& firsts);

  /// What each replica follows: `leader`, or relays.
  std::vector<lineup> relay(const lineup& leader);

  /// Places the relays of `tree` in front of `leader`; returns their lineups.
  std::vector<lineup> spawn_relays(const process_tree& tree,
                                   const std::vector<replica_actor>& firsts,
                                   const lineup& leader);

  /// For requests that take as long as a replica computes or, with `is_long`
  /// false, need no long computing.
  [[nodiscard]] gather_limits limits(bool is_long) const;

  /// As `ask`, but asks `members`.
  template <class Result, class Make>
  std::vector<Result> ask_some(std::vector<replica_actor> members, Make make,
                               bool is_long = false);

  void assume(std::size_t count, const model_state& state);

  template <class Result, class Make>
  std::vector<Result> ask(std::size_t count, Make make, bool is_long = false);

  /// The failure that `all`, the answers of `members`, report, if they do.
  template <class Result>
  [[nodiscard]] std::optional<replica_failure>
  failure_of(const answers<Result>& all,
             const std::vector<replica_actor>& members) const;

  caf::actor_system& system_;
  caf::actor asker_;
  std::vector<replica_actor> members_;
  caf::timespan deadline_;
  std::int64_t fan_in_;
  std::deque<pending_answers<step_report>> steps_;
  /// Whether replica 0 did not say how a step ended.
  bool leader_lost_ = false;
};

} // namespace syncnorm::train
