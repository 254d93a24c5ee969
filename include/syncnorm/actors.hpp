#pragma once

#include "syncnorm/compat.hpp"
#include "syncnorm/message_types.hpp"

#include <cstdint>
#include <string>

// The whole message protocol is on this page.
//
// Participants of a layer are its owner, who leads (identifier 0), and the
// slaves (1 or more). Each computes for one replica: one copy of the layer. In
// a round every participant sends one message to the master and gets one reply.
// A generation is the set of slaves that have registered together; its rounds
// count from 1.

namespace syncnorm {

/// The handle of a master: one a layer. In is what each participant sends into
/// a round, Out what it gets back. Every request is answered, with a value or
/// with one error; codes and causes stand in docs/errors.md.
///
/// A relay has the same handle: to its slaves it is their master, to its parent
/// (the master, or another relay) it is one participant, which stands for a
/// range of replicas.
template <class In, class Out>
using sync_master_actor = detail::typed_actor<
    /// From an actor that wants to take part, with its identifier, 1 or more
    /// (0 is the owner's). The ticket makes a `slave_pipe`. After a round has
    /// run or failed, the first registration that is not refused begins a new
    /// generation.
    /// Errors: invalid_identifier, duplicate_identifier; unregistered if no
    /// actor sent it. Of a relay also those of its own registration with its
    /// parent: master_down, wrong_layer, stale and so on.
    caf::result<slave_ticket>(register_slave_atom, std::int64_t),

    /// From a registered slave, once a round. Answered when the round is
    /// complete, with the callback's reply for this slave.
    /// Errors: unregistered, stale, and every way in which a round fails.
    caf::result<Out>(run_slave_atom, round_tag, In),

    /// From a thread with a slave's pipe: the same, the answer goes to the
    /// slot.
    caf::result<void>(run_slave_atom, round_tag, In, detail::reply_slot),

    /// From the owner, once a round: its own message. Answered as a slave's. It
    /// names no round: once a slave has registered again after a failure, it is
    /// of the new generation.
    /// Errors: as a slave's; invalid_argument from a relay, which nobody leads.
    caf::result<Out>(run_master_atom, In),

    /// From the owner, if it is a thread: the same, the answer goes to the
    /// slot.
    caf::result<void>(run_master_atom, In, detail::reply_slot),

    /// From anybody: how many slaves are registered for the next round, a relay
    /// as all that it stands for; 0 after a round that has failed, until the
    /// first registers again.
    caf::result<std::uint64_t>(nr_slaves_atom),

    /// From anybody: what the master has counted since it was spawned.
    caf::result<sync_metrics>(get_metrics_atom),

    /// From a registered slave that cannot do its part of the round, or from
    /// the owner (identifier 0), with the reason: the round that is not
    /// complete yet, or the next, fails with `participant_failed` for all
    /// others, also if the sender's message is there; with
    /// `continue_with_survivors` it goes on without that slave. The owner is
    /// the actor that led last, in an earlier generation too. If none has, or a
    /// thread led last, any actor of the master's node may say it.
    caf::result<void>(give_up_atom, round_tag, std::string),

    /// From the owner, if it is a thread: the same. The slot shows that it is
    /// of this process.
    caf::result<void>(give_up_atom, round_tag, std::string, detail::reply_slot),

    /// From the master's own timer: is the round overdue?
    caf::result<void>(check_deadline_atom),

    /// From a relay to its parent: the first identifier, and the number of
    /// replicas from there on, that it stands for. Answered as a slave's
    /// registration.
    /// Errors: as there; invalid_argument if the master's callback cannot
    /// merge.
    caf::result<slave_ticket>(register_relay_atom, std::int64_t, std::int64_t),

    /// From a registered relay to its parent, once a round, when all of its
    /// replicas have sent theirs. Answered with the reply for all of them.
    /// Errors: as a slave's; malformed_message.
    caf::result<Out>(run_relay_atom, round_tag, relay_parts),

    /// From a relay to its parent: the round has failed below, with that error;
    /// it becomes the error of all. `deadline_exceeded` says whom the relay
    /// waits for: with `fail_round` it waits until the parent has heard who
    /// else is late. From a parent to its relays: that is the round's error.
    caf::result<void>(round_failed_atom, round_tag, caf::error),

    /// From a parent to a relay that is late: it has that long to say which of
    /// its replicas it waits for, by `round_failed_atom`.
    caf::result<void>(report_late_atom, round_tag, caf::timespan)>;

/// The handle of one copy of a batch-norm layer in a pipeline of actors. It
/// takes its passes one after the other in the order of the requests. In
/// training, a pass is answered when the other copies have been asked for the
/// same one; a round that fails is answered with the master's error.
using batch_norm_slave_actor = detail::typed_actor<
    /// From whoever feeds the layer, once a batch: x. Answered with y, where x
    /// was (a copy on a CUDA device takes x from there or from host memory),
    /// and the pass id for the backward pass.
    ///
    /// In evaluation and in online standardization the id is 0, and nothing is
    /// kept. To go backward through fixed statistics, make the layer `frozen`
    /// and leave it in training. Who does not wait for the answer does not
    /// learn the id: x is kept until the copy is released.
    ///
    /// Errors: shape_mismatch, dtype_mismatch, device_mismatch, and of a device
    /// device_failure and, if it does not finish, deadline_exceeded: the other
    /// copies, if they take part, get participant_failed. malformed_message,
    /// for all of them, if a counter of copy 0 cannot count x as well. Of the
    /// round, if it is one, as run_slave_atom; master_down if the master's copy
    /// was released.
    caf::result<shared_tensor, std::uint64_t>(forward_atom, shared_tensor),

    /// From whoever feeds the layer: several batches together, each with
    /// statistics of its own, as if asked for one after the other; but they
    /// share their messages, also those of the round. All copies must be asked
    /// for the same ones together. Answered with their y and the pass id of the
    /// first; those of the others follow it by one.
    /// Errors: as above, for all of them if one does not fit; invalid_argument
    /// for none.
    caf::result<shared_tensors, std::uint64_t>(forward_atom, shared_tensors),

    /// From whoever takes the layer's output: the pass id and dy. Answered
    /// with dx, where dy was; the gradients of weight and bias are added to
    /// those of earlier passes, since zero_gradients_atom. Errors: as above;
    /// invalid_argument for an unknown or used id. The other copies may already
    /// wait in that pass, so they get participant_failed; not if the id is 0 or
    /// the layer is frozen or online, where no pass needs another copy.
    caf::result<shared_tensor>(backward_atom, std::uint64_t, shared_tensor),

    /// From whoever will not come back with a pass id: forget it.
    /// Errors: invalid_argument for an unknown pass id.
    caf::result<void>(forget_atom, std::uint64_t),

    /// From the trainer, between passes: training from now on, or evaluation.
    /// It counts for each pass that has not begun, also one asked for before.
    caf::result<void>(train_atom, bool),

    /// From the trainer: an array of the state, or a gradient, by its name:
    /// `weight`, `running_var`, ..., `weight.grad`, `bias.grad`.
    /// Errors: invalid_argument for an unknown name; of a device device_failure
    /// and, if it does not finish, deadline_exceeded.
    caf::result<double_array>(read_state_atom, std::string),

    /// From the trainer, between passes: overwrites that array. Answered when
    /// it is written.
    /// Errors: as above, and for a counter that is no whole number from 0 to
    /// 2^53; shape_mismatch for another number of elements.
    caf::result<void>(write_state_atom, std::string, double_array),

    /// From the trainer, between passes: `weight.grad` and `bias.grad` begin at
    /// 0 again.
    caf::result<void>(zero_gradients_atom),

    /// From anybody: what the copies' master has counted since it was spawned,
    /// or, behind a relay, the relay. A copy that is alone answers an empty
    /// `sync_metrics`.
    /// Errors: master_down; participant_down if this slave exits first.
    caf::result<sync_metrics>(get_metrics_atom),

    /// From whoever cannot do its part, with the reason: the next round
    /// fails with `participant_failed` for the other copies.
    caf::result<void>(give_up_atom, std::string)>;

} // namespace syncnorm
