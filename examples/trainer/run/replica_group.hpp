#pragma once

#include "trainer/run/messages.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace syncnorm::train {

/// The replicas of a run as the trainer addresses them: one request to each,
/// then all answers. They end with this object.
class replica_group {
public:
  replica_group(caf::actor_system& system, std::vector<replica_actor> members);
  replica_group(const replica_group&) = delete;
  replica_group& operator=(const replica_group&) = delete;
  ~replica_group();

  [[nodiscard]] std::size_t size() const noexcept {
    return members_.size();
  }

  // All throw `failure` with the text of the replica at fault if one of them
  // answers an error.

  /// One step on every replica; the reports in their order.
  std::vector<step_report> step(const step_plan& plan);

  /// The held-out samples [0, samples), over the first `replicas` of them.
  evaluation evaluate(std::uint64_t samples, std::size_t replicas);

  /// @throws failure also if two replicas have different hashes.
  void require_same_weights();

  /// Has replica 0 write a checkpoint.
  void save(const std::string& file, const std::string& state);

  /// Has every replica go on from a checkpoint.
  void load(const std::string& file);

private:
  /// Requests `make(member, index)` of the first `count` members.
  template <class Result, class Make>
  std::vector<Result> ask(std::size_t count, Make make);

  caf::scoped_actor self_;
  std::vector<replica_actor> members_;
};

} // namespace syncnorm::train
