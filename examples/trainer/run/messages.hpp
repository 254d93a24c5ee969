#pragma once

#include "trainer/run/flat_array.hpp"
#include "trainer/run/model_state.hpp"

#include "syncnorm/actors.hpp"
#include "syncnorm/compat.hpp"
#include "syncnorm/layer_master.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// What the trainer, the replicas, the master of the gradients and the processes
// of a run say to each other. They know nothing else of each other, so they may
// live in different processes.

namespace syncnorm::train {

/// Trainer to replica: do your part of one step.
struct step_plan {
  std::uint64_t epoch = 0;
  /// Counts from 1 over the whole training.
  std::uint64_t step = 0;
  /// The batch: positions [begin, end) of the epoch's order.
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  double learning_rate = 0;
};

/// Replica to trainer: how its part of one step went.
struct step_report {
  /// Mean loss of the whole batch: the same from every replica.
  double loss = 0;
  /// Whether this replica's own part of the loss and the gradient was finite.
  bool finite = true;
  /// Whether the sums of both over all replicas were finite: the same from
  /// every replica. If not, no replica has changed its weights.
  bool sum_finite = true;
  /// Wall-clock time of this replica's step, in seconds.
  double seconds = 0;
  /// Part of `seconds`: adding up the gradients of all replicas.
  double averaging = 0;
  /// Part of `seconds`: waiting. On a CPU, all time in which the replica's
  /// thread did not run: it waited for the statistics or gradients of the
  /// others, or, where there are fewer cores than replicas, for a core. On a
  /// GPU, the exchange of gradients only, without adding them up.
  double waiting = 0;
};

/// Replica to a master of the gradients: its part of the sum.
struct gradient_part {
  /// Sum of its samples' losses, divided by the number of samples in the batch;
  /// in the first chunk of a gradient, else 0.
  double loss = 0;
  /// Gradient of that loss, or a chunk of it. Empty: zero, for a replica
  /// without samples.
  flat_array gradient;
  /// From a relay: `gradient` is the sum in float64 of gradients in float32.
  bool narrow = false;
  /// Time that relays took to add up, in seconds.
  double seconds = 0;
};

/// The master's answer: the sums over all replicas, the same to each.
struct gradient_sum {
  double loss = 0;
  flat_array gradient;
  /// Whether loss and gradient are finite.
  bool finite = true;
  /// Time it took to add up, in seconds.
  double seconds = 0;
};

/// Replica to trainer: results on its part of the held-out samples.
struct evaluation {
  std::uint64_t samples = 0;
  std::uint64_t correct = 0;
  /// Sum over the samples.
  double loss = 0;
};

/// A master that adds up gradients.
using gradient_master = sync_master_actor<gradient_part, gradient_sum>;

/// One for each lane of the exchange; see `gradient_exchange`.
using gradient_masters = std::vector<gradient_master>;

/// Replica 0 to the others, via the trainer: what they register with.
struct lineup {
  layer_masters layers;
  gradient_masters gradients;
};

template <class Inspector>
auto inspect(Inspector& f, step_plan& x) {
  return compat::inspect_object(
      f, x, "syncnorm::train::step_plan", compat::field("epoch", x.epoch),
      compat::field("step", x.step), compat::field("begin", x.begin),
      compat::field("end", x.end),
      compat::field("learning_rate", x.learning_rate));
}

template <class Inspector>
auto inspect(Inspector& f, step_report& x) {
  return compat::inspect_object(f, x, "syncnorm::train::step_report",
                                compat::field("loss", x.loss),
                                compat::field("finite", x.finite),
                                compat::field("sum_finite", x.sum_finite),
                                compat::field("seconds", x.seconds),
                                compat::field("averaging", x.averaging),
                                compat::field("waiting", x.waiting));
}

template <class Inspector>
auto inspect(Inspector& f, gradient_part& x) {
  return compat::inspect_object(
      f, x, "syncnorm::train::gradient_part", compat::field("loss", x.loss),
      compat::field("gradient", x.gradient), compat::field("narrow", x.narrow),
      compat::field("seconds", x.seconds));
}

template <class Inspector>
auto inspect(Inspector& f, gradient_sum& x) {
  return compat::inspect_object(
      f, x, "syncnorm::train::gradient_sum", compat::field("loss", x.loss),
      compat::field("gradient", x.gradient), compat::field("finite", x.finite),
      compat::field("seconds", x.seconds));
}

template <class Inspector>
auto inspect(Inspector& f, evaluation& x) {
  return compat::inspect_object(
      f, x, "syncnorm::train::evaluation", compat::field("samples", x.samples),
      compat::field("correct", x.correct), compat::field("loss", x.loss));
}

template <class Inspector>
auto inspect(Inspector& f, lineup& x) {
  return compat::inspect_object(f, x, "syncnorm::train::lineup",
                                compat::field("layers", x.layers),
                                compat::field("gradients", x.gradients));
}

class errand;

/// Trainer to asker: the next errand. Stays in this process.
struct errand_slot {
  std::shared_ptr<errand> it;
};

struct application;
struct process_entry;

} // namespace syncnorm::train

CAF_BEGIN_TYPE_ID_BLOCK(syncnorm_train, caf::first_custom_type_id + 300)

CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::flat_array))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::step_plan))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::step_report))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::gradient_part))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::gradient_sum))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::evaluation))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::lineup))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::model_state))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::application))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::process_entry))
CAF_ADD_TYPE_ID(syncnorm_train, (std::vector<syncnorm::train::process_entry>) )
CAF_ADD_TYPE_ID(syncnorm_train, (std::vector<std::string>) )
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::errand_slot))

CAF_ADD_ATOM(syncnorm_train, syncnorm::train, step_atom, "tr_step")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, evaluate_atom, "tr_eval")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, hash_atom, "tr_hash")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, state_atom, "tr_state")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, assume_atom, "tr_assume")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, lead_atom, "tr_lead")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, follow_atom, "tr_follow")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, relay_atom, "tr_relay")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, open_atom, "tr_open")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, reach_atom, "tr_reach")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, settle_atom, "tr_settle")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, ping_atom, "tr_ping")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, ask_atom, "tr_ask")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, expire_atom, "tr_expire")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, join_atom, "tr_join")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, stay_atom, "tr_stay")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, leave_atom, "tr_leave")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, roll_atom, "tr_roll")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, dismiss_atom, "tr_dismiss")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, end_atom, "tr_end")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, refused_atom, "tr_refused")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, refusals_atom, "tr_refusal")

CAF_END_TYPE_ID_BLOCK(syncnorm_train)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(syncnorm::train::errand_slot)

namespace syncnorm::train {

/// One replica: a model on a device, and the thread that computes with it.
/// Every request is answered; an error's text is one line for the user.
using replica_actor = compat::typed_actor<
    /// From the trainer, to one of the replicas, before the first step and
    /// whenever the participants change: lead that many replicas, this one
    /// included. Answered with what the others need.
    caf::result<lineup>(lead_atom, std::uint64_t),

    /// From the trainer, to the first replica of another process: place relays
    /// in front of that lineup for replicas `first` to `first` + `count` - 1,
    /// of its process and of those below it. Answered with the lineup that
    /// these replicas follow: one message per layer and round leaves the
    /// process.
    caf::result<lineup>(relay_atom, lineup, std::uint64_t, std::uint64_t),

    /// From the trainer, to the first replica of a process that has others
    /// below it in the tree of processes: let them connect. Answered with
    /// where: `HOST:PORT`.
    caf::result<std::string>(open_atom),

    /// From the trainer, to the first replica of a process below another one:
    /// connect to that one, so that messages to its relays go there directly.
    caf::result<void>(reach_atom, std::string),

    /// From the trainer, to the others: follow that lineup as replica number
    /// `index` (1 or more) of that many.
    caf::result<void>(follow_atom, lineup, std::uint64_t, std::uint64_t),

    /// From the trainer, to all replicas, when the participants change: this
    /// one is number `index`, from 0, of that many on its machine. Earlier
    /// relays end.
    caf::result<void>(settle_atom, std::uint64_t, std::uint64_t),

    /// From the trainer, to all replicas: one step of the training. After an
    /// error the replica is as it was before the step.
    caf::result<step_report>(step_atom, step_plan),

    /// From the trainer, between steps: the held-out samples [begin, end).
    caf::result<evaluation>(evaluate_atom, std::uint64_t, std::uint64_t),

    /// From the trainer, between steps: a hash of all weights, and of the
    /// running statistics where replicas share them.
    caf::result<std::uint64_t>(hash_atom),

    /// From the trainer, between steps, to the first replica. Answered with the
    /// state that the others must equal, and that a checkpoint is made from.
    caf::result<model_state>(state_atom),

    /// From the trainer, before the first step and when the participants
    /// change: continue from that state, of replica 0 or of a checkpoint. After
    /// an error the replica is as it was before.
    caf::result<void>(assume_atom, model_state),

    /// From the trainer: still there? Answered with why its messages do not get
    /// to the process above it, or with an empty text.
    caf::result<std::string>(ping_atom)>;

/// What a process publishes for those below it in the tree of processes: they
/// connect through it.
using door_actor = compat::typed_actor<
    /// From those below: still there?
    caf::result<void>(ping_atom)>;

/// Worker to host: who asks to take part, and in what.
struct application {
  /// Host and process, for texts.
  std::string name;
  /// The number that a launcher gave the process; -1: none did.
  std::int64_t rank = -1;
  /// What must be equal in all processes; see `run_identity`.
  std::string identity;
  std::vector<replica_actor> replicas;
  /// Made up when the process starts: tells it from another of the same name.
  std::uint64_t start = 0;
};

/// Host to the trainer: a process that takes part.
struct process_entry {
  /// Counts the processes from 1 in order of arrival; never reused.
  std::uint64_t number = 0;
  std::string name;
  std::int64_t rank = -1;
  /// Why it no longer takes part; empty: it does.
  std::string gone;
  std::vector<replica_actor> replicas;
};

template <class Inspector>
auto inspect(Inspector& f, application& x) {
  return compat::inspect_object(
      f, x, "syncnorm::train::application", compat::field("name", x.name),
      compat::field("rank", x.rank), compat::field("identity", x.identity),
      compat::field("replicas", x.replicas), compat::field("start", x.start));
}

template <class Inspector>
auto inspect(Inspector& f, process_entry& x) {
  return compat::inspect_object(
      f, x, "syncnorm::train::process_entry", compat::field("number", x.number),
      compat::field("name", x.name), compat::field("rank", x.rank),
      compat::field("gone", x.gone), compat::field("replicas", x.replicas));
}

/// The process that serves a run, as the other processes see it: all that it
/// publishes. Errors are one line for the user.
using host_actor = compat::typed_actor<
    /// From a worker: take part in the run. Answered with the process' number
    /// or, as an error, why not.
    caf::result<std::uint64_t>(join_atom, application),

    /// From a worker, once, with its number. Answered when the run has ended
    /// for it: with what to tell the user or, as an error, why it failed.
    caf::result<std::string>(stay_atom, std::uint64_t),

    /// From a worker that wants to leave at the end of the step.
    caf::result<void>(leave_atom, std::uint64_t),

    // Only from the host's own process:

    /// From the trainer: the processes; answered when there are that many, or
    /// after that time.
    caf::result<std::vector<process_entry>>(roll_atom, std::uint64_t,
                                            caf::timespan),

    /// From the trainer: a process no longer takes part, and why.
    caf::result<void>(dismiss_atom, std::uint64_t, std::string),

    /// From the trainer: the run has ended, well or not, with a text for all.
    /// Answered when the workers have gone, or after that time: whether all
    /// have.
    caf::result<bool>(end_atom, bool, std::string, caf::timespan),

    /// From the actor that is told of it: a connection was refused, and why.
    caf::result<void>(refused_atom, std::string),

    /// From the trainer: who was refused since it last asked, a line for each.
    caf::result<std::vector<std::string>>(refusals_atom),

    /// From the host's own timers.
    caf::result<void>(expire_atom, std::uint64_t)>;

} // namespace syncnorm::train
