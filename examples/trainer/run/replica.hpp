#pragma once

#include "trainer/input/dataset.hpp"
#include "trainer/model/engine.hpp"
#include "trainer/plan/settings.hpp"
#include "trainer/run/messages.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace syncnorm::train {

/// Spawns the replicas of a run in this process, each with a thread of its own,
/// and joins them: their gradients by a `sync_master` that replica 0 leads,
/// their batch-norm layers if these are synchronized.
/// @param devices one for each replica.
/// @throws failure if a device is not there; syncnorm::error if they cannot be
///         joined.
[[nodiscard]] std::vector<replica_actor>
spawn_replicas(caf::actor_system& system, const settings& options,
               const std::vector<device>& devices, const dataset_ptr& data);

} // namespace syncnorm::train
