#pragma once

#include "trainer/input/dataset.hpp"
#include "trainer/model/engine.hpp"
#include "trainer/plan/settings.hpp"
#include "trainer/run/messages.hpp"

#include <cstdint>
#include <vector>

namespace syncnorm::train {

/// Spawns the replicas of this process, each with a thread of its own. They do
/// not know of each other until a `replica_group` assembles them.
/// @param devices one for each replica.
/// @param fingerprint set to that of their models, if given.
/// @throws failure if a device is not there.
[[nodiscard]] std::vector<replica_actor>
spawn_replicas(caf::actor_system& system, const settings& options,
               const std::vector<device>& devices, const dataset_ptr& data,
               std::uint64_t* fingerprint = nullptr);

} // namespace syncnorm::train
