#pragma once

#include "syncnorm/compat.hpp"
#include "syncnorm/message_types.hpp"

#include <cstdint>
#include <string>

// The whole message protocol is on this page.
//
// The participants of a layer are its owner, which leads (identifier 0), and
// its slaves (1 or more). Each computes for one replica: one copy of the layer.
// In a round, every participant sends one message to the master and gets one
// reply. A generation is the set of slaves that have registered together; its
// rounds are numbered from 1.

namespace syncnorm {

/// The handle of a master; each layer has one master. In is the message that
/// each participant sends into a round, Out the reply that it gets. Every
/// request is answered with a value or with one error; docs/errors.md lists
/// codes and causes.
///
/// A relay has the same handle: its slaves see it as their master; its parent
/// (the master or another relay) sees it as one participant that stands for a
/// range of replicas.
template <class In, class Out>
using sync_master_actor = detail::typed_actor<
    /// From an actor that wants to take part, with its identifier, 1 or more (0
    /// is the owner's). Make a `slave_pipe` from the ticket. After a round has
    /// run or failed, the first registration that is not refused begins a new
    /// generation.
    /// Errors: invalid_identifier, duplicate_identifier; unregistered if no
    /// actor sent it. A relay also answers the errors of its own registration
    /// with its parent: master_down, wrong_layer, stale and so on.
    caf::result<slave_ticket>(register_slave_atom, std::int64_t),

    /// From a registered slave, once per round. Answered when the round is
    /// complete, with the callback's reply for this slave.
    /// Errors: unregistered, stale, and every error with which a round fails.
    caf::result<Out>(run_slave_atom, round_tag, In),

    /// From a thread with a slave's pipe: the same, but the answer goes to the
    /// slot.
    caf::result<void>(run_slave_atom, round_tag, In, detail::reply_slot),

    /// From the owner, once per round: its own message. Answered like a slave's
    /// message. It names no round: once a slave has registered again after a
    /// failure, the message belongs to the new generation.
    /// Errors: as for a slave's message; invalid_argument from a relay, which
    /// nobody leads.
    caf::result<Out>(run_master_atom, In),

    /// From the owner, if it is a thread: the same, but the answer goes to the
    /// slot.
    caf::result<void>(run_master_atom, In, detail::reply_slot),

    /// From anybody: how many slaves are registered for the next round (a relay
    /// counts as all replicas that it stands for); 0 after a failed round,
    /// until the first slave or relay registers again.
    caf::result<std::uint64_t>(nr_slaves_atom),

    /// From anybody: what the master has counted since it was spawned.
    caf::result<sync_metrics>(get_metrics_atom),

    /// From a registered slave that cannot do its part of the round, or from
    /// the owner (identifier 0), with the reason: the round that is not
    /// complete yet, or else the next one, fails with `participant_failed` for
    /// all others, even if the sender's message has already arrived; with
    /// `continue_with_survivors` the round goes on without that slave. The
    /// owner is the actor that led last, even in an earlier generation. If no
    /// actor has led yet, or a thread led last, any actor of the master's node
    /// may send this.
    caf::result<void>(give_up_atom, round_tag, std::string),

    /// From the owner, if it is a thread: the same. The slot shows that the
    /// owner is in this process.
    caf::result<void>(give_up_atom, round_tag, std::string, detail::reply_slot),

    /// From the master's own timer: is the round overdue?
    caf::result<void>(check_deadline_atom),

    /// From a relay to its parent: the first identifier that the relay stands
    /// for, and the number of replicas from there on. Answered like a slave's
    /// registration.
    /// Errors: as for a slave; invalid_argument if the master's callback cannot
    /// merge.
    caf::result<slave_ticket>(register_relay_atom, std::int64_t, std::int64_t),

    /// From a registered relay to its parent, once per round, when all of its
    /// replicas have sent their messages. Answered with the reply for all of
    /// them.
    /// Errors: as for a slave's message; malformed_message.
    caf::result<Out>(run_relay_atom, round_tag, relay_parts),

    /// From a relay to its parent: the round has failed below the relay, with
    /// that error, which becomes the error of all. `deadline_exceeded` names
    /// the replicas that the relay waits for; with `fail_round`, the relay then
    /// waits until the parent has heard who else is late. From a parent to its
    /// relays: that error is the round's error.
    caf::result<void>(round_failed_atom, round_tag, caf::error),

    /// From a parent to a relay that is late: the time within which the relay
    /// must name, by `round_failed_atom`, the replicas that it waits for.
    caf::result<void>(report_late_atom, round_tag, caf::timespan)>;

/// The handle of one copy of a batch-norm layer in a pipeline of actors. It
/// runs its passes one after the other, in the order of the requests. In
/// training, it answers a pass when the other copies have been asked for the
/// same pass; if the round fails, it answers with the master's error.
using batch_norm_slave_actor = detail::typed_actor<
    /// From the actor that feeds the layer, once per batch: x. Answered with y,
    /// on the device of x (a copy on a CUDA device accepts x there or in host
    /// memory), and the pass id for the backward pass.
    ///
    /// In evaluation and in online standardization, the id is 0, and nothing is
    /// kept. To go backward through fixed statistics, make the layer `frozen`
    /// and leave it in training. A sender that does not wait for the answer
    /// does not learn the id: x is kept until the copy is released.
    ///
    /// Errors: shape_mismatch, dtype_mismatch, device_mismatch, device_failure
    /// and, if a device does not finish, deadline_exceeded: the other copies,
    /// if they take part, get participant_failed. malformed_message, for all
    /// copies, if a counter of copy 0 is negative, or if another batch or its
    /// elements would take it past 2^63 - 1. If the pass has a round, also the
    /// errors of run_slave_atom, with master_down if copy 0, and the master
    /// with it, was released.
    caf::result<shared_tensor, std::uint64_t>(forward_atom, shared_tensor),

    /// From the actor that feeds the layer: several batches together, each with
    /// statistics of its own, as if sent one after the other; but they share
    /// their messages, including those of the round. All copies must be asked
    /// for the same batches together. Answered with the y of each batch and the
    /// pass id of the first; each further batch has the next id.
    /// Errors: as above, for all batches if one does not fit; invalid_argument
    /// for no batch.
    caf::result<shared_tensors, std::uint64_t>(forward_atom, shared_tensors),

    /// From the actor that takes the layer's output: the pass id and dy.
    /// Answered with dx, on the device of dy; the gradients of weight and bias
    /// are added to those of earlier passes since zero_gradients_atom. Errors:
    /// as above; invalid_argument for an unknown or used id. If the request is
    /// refused, the other copies get participant_failed, because they may
    /// already wait in the round of that pass; not if the id is 0 or the layer
    /// is frozen or online, where backward passes have no round.
    caf::result<shared_tensor>(backward_atom, std::uint64_t, shared_tensor),

    /// From a sender that will not come back with a pass id: forget the pass.
    /// Errors: invalid_argument for an unknown pass id.
    caf::result<void>(forget_atom, std::uint64_t),

    /// From the trainer, between passes: true for training from now on, false
    /// for evaluation. This holds for each pass that has not begun, even if it
    /// was already requested.
    caf::result<void>(train_atom, bool),

    /// From the trainer: an array of the state, or a gradient, by its name:
    /// `weight`, `running_var`, ..., `weight.grad`, `bias.grad`.
    /// Errors: invalid_argument for an unknown name; device_failure and, if a
    /// device does not finish, deadline_exceeded.
    caf::result<double_array>(read_state_atom, std::string),

    /// From the trainer, between passes: overwrites the array of that name.
    /// Answered when the array is written.
    /// Errors: as above; invalid_argument for a counter that is not a whole
    /// number from 0 to 2^53; shape_mismatch for another number of elements.
    caf::result<void>(write_state_atom, std::string, double_array),

    /// From the trainer, between passes: sets `weight.grad` and `bias.grad` to
    /// 0.
    caf::result<void>(zero_gradients_atom),

    /// From anybody: what the copies' master (or, for a copy behind a relay,
    /// the relay) has counted since it was spawned. A copy that stands alone
    /// answers an empty `sync_metrics`.
    /// Errors: master_down; participant_down if this slave exits first.
    caf::result<sync_metrics>(get_metrics_atom),

    /// From a sender that cannot do its part, with the reason: the next round
    /// fails with `participant_failed` for the other copies.
    caf::result<void>(give_up_atom, std::string)>;

} // namespace syncnorm
