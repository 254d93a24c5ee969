#pragma once

#include "syncnorm/layer_master.hpp"
#include "syncnorm/nn/synchronize.hpp"

#include <cstdint>
#include <memory>

namespace syncnorm::nn {

// For copies that `synchronize` cannot be given together, because they live in
// different processes or come one by one. Copy 0 leads, the others follow it;
// what holds of `synchronize` holds of them: they wait for actors, so that none
// of CAF's workers may call them. Only shapes are not compared here: the first
// call of a copy that tracks running statistics throws if copy 0 does not.

/// Makes `copy` the first of `copies`: spawns the masters, one a layer. It may
/// go forward at once: a round waits for copies that have not followed yet,
/// until its deadline.
/// @param options count for all copies, but that the errors that a follower
///                makes by itself have no `prefix`; `group_size` must be 0.
/// @returns the masters, in the order of the layers; pass them to the others,
///          for example in a message type of your own; see `layer_masters`.
///          With one copy their handles are null.
/// @throws error `invalid_argument` if `copy` is null, `copies` is less than 1
///         or `options` are wrong.
[[nodiscard]] layer_masters
lead_copies(caf::actor_system& system,
            const std::shared_ptr<torch::nn::Module>& copy, std::int64_t copies,
            SynchronizeOptions options = {});

/// Makes `copy` one of those that `lead_copies` has been called for, in this
/// process or in another. Returns when every layer has registered. After a
/// pass, or a failure, the first call begins a new generation, in which all
/// others have to follow again; copy 0 stays where it is. So a copy that
/// follows after another one gave up is not told of that, and waits for its
/// deadline.
///
/// @param copy_id 1 or more, another one for each; a round of more or fewer
///                copies than were announced fails. While it is taken in this
///                generation, the call waits for a second: a copy that was
///                released may still leave.
/// @throws error `invalid_argument` if `copy` is null or has a layer of which
///         there is no master, or `copy_id` is less than 1; and as the masters
///         answer: `duplicate_identifier`, `invalid_identifier`,
///         `master_down`, also if one on another node does not answer within a
///         minute.
void follow_copies(caf::actor_system& system,
                   const std::shared_ptr<torch::nn::Module>& copy,
                   std::int64_t copy_id, const layer_masters& masters);

} // namespace syncnorm::nn
