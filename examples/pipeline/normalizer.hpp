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
/// them, and passes on their answers in the order of the batches. Batches that
/// come while the slaves are busy are sent to them together. When slaves have
/// died, this stage gets new ones from the supervisor and feeds them what was
/// not answered.
class normalizer : public stage_actor::base {
public:
  /// @param stop raised when the slaves cannot continue.
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
  /// The batches that were not fed yet, as many as may go together.
  [[nodiscard]] group_ptr next_group() const;
  void scatter(const group_ptr& some);
  void ask(const group_ptr& some, std::size_t slave);
  /// A slave has answered.
  void gather(group& some, std::size_t slave,
              const syncnorm::shared_tensors& ys);

  /// Continues after an answer: passes batches on, recovers.
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
  /// The batches that were not passed on yet, in order.
  std::deque<job_ptr> window_;
  /// Groups that not all slaves have answered.
  std::size_t groups_ = 0;
  /// Requests without an answer.
  std::size_t open_ = 0;
  /// Why the slaves can no longer be used.
  std::optional<caf::error> broken_;
  bool recovering_ = false;
  /// Attempts to recover since the last batch was passed on.
  int attempts_ = 0;
  std::uint64_t recoveries_ = 0;
  std::uint64_t lost_ = 0;
  std::string failure_;
  std::optional<totals> end_;
};

} // namespace pipeline
