#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/batch_norm_messages.hpp"
#include "syncnorm/sync_callback.hpp"
#include "syncnorm/sync_options.hpp"
#include "syncnorm/sync_relay.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace syncnorm {

/// The master of one batch-norm layer.
using batch_norm_master_actor =
    sync_master_actor<batch_norm_message, batch_norm_reply>;

/// Spawns the master of the layer `options.layer`. In each round it compares
/// the messages and sends all participants the same reply. From one round to
/// the next, it keeps only the number of the last forward pass
/// (`batch_norm_reply::pass`): running statistics come with the owner's message
/// and go back with the reply.
/// @param options if the policy is left open, it is `fail_round`, whatever is
///                configured.
/// @param participants how many take part in each round, the owner included; a
///                     round of fewer fails, unless `options.policy` is to go
///                     on with the survivors.
/// @throws error as `spawn_sync_master` and `batch_norm_reduction`.
[[nodiscard]] batch_norm_master_actor
spawn_batch_norm_master(caf::actor_system& system, sync_options options,
                        std::int64_t participants);

/// Spawns a relay of that layer for the replicas of `range`, in front of its
/// master or of another relay; see `spawn_sync_relay`.
/// @throws error as `spawn_sync_relay`.
[[nodiscard]] batch_norm_master_actor
spawn_batch_norm_relay(caf::actor_system& system,
                       const batch_norm_master_actor& parent, std::string layer,
                       replica_range range);

/// Where the copies of a layer that are all in one process register.
using batch_norm_relays = sync_relays<batch_norm_message, batch_norm_reply>;

/// Spawns the relays of a layer's copies in this process: none, unless `copies`
/// is greater than the fan-in of `options`.
/// @param copies how many, the owner included.
/// @throws error as `plan_relays`, `resolve` and `spawn_sync_relay`.
[[nodiscard]] std::shared_ptr<batch_norm_relays>
spawn_batch_norm_relays(caf::actor_system& system,
                        const batch_norm_master_actor& master,
                        const sync_options& options, std::int64_t copies);

/// How the layer's master merges and replies.
/// @throws error `invalid_argument` for less than one participant.
[[nodiscard]] sync_reduction<batch_norm_message, batch_norm_reply>
batch_norm_reduction(const sync_options& options, std::int64_t participants);

/// One message that stands for all of `messages`, with the update of the first.
/// If all values lie on devices, the merge is enqueued; if only some do, the
/// result asks to send again.
/// @param messages one or more.
/// @param on  a stream of the first message's device for the merge; none: the
///            stream that wrote that message's values.
/// @throws error as `merge_round`.
[[nodiscard]] batch_norm_message
merge_messages(std::span<const identified<batch_norm_message>> messages,
               const device_stream& on = {});

/// The reply that the master makes from a round's messages, but without the
/// number of a forward pass: `pass` is 0. A function of its arguments only.
///
/// Forward: merges the moments along the tree over the identifiers, then
/// finalizes them as `finalize_moments`, with the owner's `update`. For a batch
/// without any element, the running statistics and the number of batches stay
/// as they were, and the reply has mean 0 and the inverse standard deviation of
/// variance 0. If online, the moments of everything seen before are first
/// merged with the batch's.
/// Backward: adds the sums along the same tree. If all values lie on devices,
/// the merge is enqueued and the reply lies on the owner's device; if only some
/// do, the reply asks to send again.
/// @param messages one or more, in the order of their identifiers, the owner's
///                 first.
/// @param on  a stream of the owner's device for the merge; none: the stream
///            that wrote the owner's values.
/// @throws error `shape_mismatch`, `dtype_mismatch`, `invalid_argument` or
///         `malformed_message`, naming the replica, if the messages disagree
///         with the owner's in mode, pass, type, channels, number of batches or
///         the options of `update`, have another size than they state, or count
///         more than 2^63 - 1 elements together; `device_mismatch` if parts of
///         a message lie on several devices.
[[nodiscard]] batch_norm_reply
merge_round(std::span<const identified<batch_norm_message>> messages,
            const device_stream& on = {});

/// The same for the owner's message alone: the reply to the only replica.
/// @throws error as above.
[[nodiscard]] batch_norm_reply merge_round(batch_norm_message message);

} // namespace syncnorm
