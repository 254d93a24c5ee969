#pragma once

#include "syncnorm/layer_master.hpp"
#include "syncnorm/nn/synchronize.hpp"

#include <cstdint>
#include <memory>

namespace syncnorm::nn {

// For copies that cannot be passed to `synchronize` together, because they live
// in different processes or come one by one. Copy 0 leads, the others follow
// it. What holds for `synchronize` holds here: the functions wait for actors,
// so none of CAF's workers may call them. Only shapes are not compared: the
// first call of a copy that tracks running statistics throws if copy 0 tracks
// none.

/// Makes `copy` the first of `copies` copies and spawns the masters, one for
/// each layer. `copy` may go forward at once: a round waits for copies that
/// have not followed yet, until the round's deadline.
/// @param options apply to all copies, except that errors which a follower
///                raises itself have no `prefix`; `group_size` must be 0.
/// @returns the masters, in the order of the layers; pass them to the other
///          copies, for example in a message type of your own; see
///          `layer_masters`. With one copy, the masters' handles are null.
/// @throws error `invalid_argument` if `copy` is null, `copies` is less than 1
///         or `options` are wrong.
[[nodiscard]] layer_masters
lead_copies(caf::actor_system& system,
            const std::shared_ptr<torch::nn::Module>& copy, std::int64_t copies,
            SynchronizeOptions options = {});

/// Makes `copy` one of the copies for which `lead_copies` was called, in this
/// process or another. Returns when every layer has registered. After a pass or
/// a failure, the first call of this function begins a new generation, in which
/// all other copies have to follow again; copy 0 stays where it is. So a copy
/// that follows after another one gave up does not learn of that, and waits
/// until its deadline.
///
/// @param copy_id 1 or more, different for each copy; a round of more or fewer
///                copies than were announced fails. While the identifier is
///                taken in this generation, the call waits, for a second at
///                most: a copy that was released may still be leaving.
/// @throws error `invalid_argument` if `copy` is null or has a layer whose
///         master is not among `masters`, or if `copy_id` is less than 1; and
///         what the masters answer: `duplicate_identifier`,
///         `invalid_identifier` or `master_down`, the last also if a master on
///         another node does not answer within a minute.
void follow_copies(caf::actor_system& system,
                   const std::shared_ptr<torch::nn::Module>& copy,
                   std::int64_t copy_id, const layer_masters& masters);

} // namespace syncnorm::nn
