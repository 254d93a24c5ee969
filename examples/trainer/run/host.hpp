#pragma once

#include "trainer/plan/settings.hpp"
#include "trainer/run/messages.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace syncnorm::train {

/// How many times the processes of a run have changed: one has come, wants to
/// leave or is gone. The host counts, the trainer reads.
using change_count = std::shared_ptr<std::atomic<std::uint64_t>>;

/// What the host needs to know of the run.
struct host_terms {
  /// What an application must say; see `run_identity`.
  std::string identity;
  /// Processes that may take part beside the host's own.
  std::size_t workers = 0;
  failure_kind on_failure = failure_kind::stop;
  /// Replicas of the host's own process.
  std::size_t replicas = 0;
  /// Samples in a batch: one for each replica, or more.
  std::size_t batch = 0;
};

/// Spawns the actor that is published: it admits the processes of a run, keeps
/// the roll, and tells them when the run ends.
[[nodiscard]] host_actor spawn_host(caf::actor_system& system, host_terms terms,
                                    change_count changes);

} // namespace syncnorm::train
