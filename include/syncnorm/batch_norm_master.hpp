#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/batch_norm_messages.hpp"
#include "syncnorm/sync_options.hpp"

#include <cstdint>
#include <span>

namespace syncnorm {

/// The master of one batch-norm layer.
using batch_norm_master_actor =
    sync_master_actor<batch_norm_message, batch_norm_reply>;

/// Spawns the master of the layer `options.layer`. In each round it compares
/// the messages, answers all participants the same reply, and knows nothing
/// from one round to the next: parameters and running statistics come with the
/// owner's message and go back with the reply.
/// @param participants how many take part in each round, the owner included; a
///                     round of fewer fails, unless `options.policy` is to go
///                     on with the survivors.
/// @throws error as `spawn_sync_master`.
batch_norm_master_actor spawn_batch_norm_master(caf::actor_system& system,
                                                sync_options options,
                                                std::int64_t participants);

/// The callback of that master. A policy that `options` leave open is to fail
/// the round.
/// @throws error `invalid_argument` for less than one participant.
[[nodiscard]] sync_callback<batch_norm_message, batch_norm_reply>
batch_norm_callback(const sync_options& options, std::int64_t participants);

/// What the master makes of a round's messages, in the order of their
/// identifiers, the owner's first. A function of its arguments only.
///
/// Forward: merges the moments along the tree of `merge_moments`, then as
/// `finalize_moments`, with the owner's `update`. A batch of no elements at all
/// leaves the running statistics and the number of batches as they were, and
/// answers mean 0 and the inverse deviation of variance 0. Online, the moments
/// of everything seen before are merged with the batch's first. Backward: adds
/// the sums along the same tree.
/// @throws error `shape_mismatch`, `dtype_mismatch`, `invalid_argument` or
///         `malformed_message`, naming the replica, if the messages disagree
///         with the owner's in mode, type or channels or have another size
///         than they say.
[[nodiscard]] batch_norm_reply
merge_round(std::span<const identified<batch_norm_message>> messages);

} // namespace syncnorm
