#pragma once

#include "messages.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace pipeline {

/// The scatter stage: splits each batch among the slave actors, asks all of
/// them, and passes on what they answer in the order of the batches. Batches
/// that have come while the slaves were busy are asked for together. When
/// slaves have died it gets new ones from the supervisor and feeds them what
/// was not answered.
class normalizer : public stage_actor::base {
public:
  /// @param stop raised when the slaves cannot go on.
  normalizer(caf::actor_config& config, supervisor_actor supervisor,
             source_actor source, std::shared_ptr<stop_signal> stop,
             stage_actor next);

  void on_exit() override;
  behavior_type make_behavior() override;

private:
  struct job {
    batch in;
    std::vector<syncnorm::shared_tensor> out;
    std::size_t missing = 0;
    bool fed = false;

    [[nodiscard]] bool done() const {
      return fed && missing == 0;
    }
  };
  using job_ptr = std::shared_ptr<job>;

  /// Batches that the slaves are asked for together.
  struct group {
    std::vector<job_ptr> jobs;
    /// Slaves that have not answered.
    std::size_t missing = 0;
  };

  using group_ptr = std::shared_ptr<group>;

  void take(batch& x);
  void take(crew x);
  void feed();
  /// What has come and was not fed yet, as far as it may go together.
  [[nodiscard]] group_ptr next_group() const;
  void scatter(const group_ptr& some);
  void ask(const group_ptr& some, std::size_t slave);
  /// A slave has answered.
  void gather(group& some, std::size_t slave,
              const syncnorm::shared_tensors& ys);

  /// Goes on after an answer: passes on, recovers.
  void settle();
  void recover();
  /// Ends the stream: what has not come out is lost, and counted.
  void give_up(const std::string& why);
  void lose(const batch& x);
  void end_if_empty();

  supervisor_actor supervisor_;
  source_actor source_;
  std::shared_ptr<stop_signal> stop_;
  stage_actor next_;

  crew crew_;
  /// In order: those that were not passed on yet.
  std::deque<job_ptr> window_;
  /// Groups that not all slaves have answered.
  std::size_t groups_ = 0;
  /// Requests without an answer.
  std::size_t open_ = 0;
  /// Why the slaves are of no more use.
  std::optional<caf::error> broken_;
  bool recovering_ = false;
  /// In a row, without a batch passed on.
  int attempts_ = 0;
  std::uint64_t recoveries_ = 0;
  std::uint64_t lost_ = 0;
  std::string failure_;
  std::optional<totals> end_;
};

} // namespace pipeline
