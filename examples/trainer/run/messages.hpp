#pragma once

#include "trainer/run/flat_array.hpp"

#include "syncnorm/actors.hpp"
#include "syncnorm/detail/caf_compat.hpp"

#include <cstdint>
#include <string>

// What trainer, replicas and the master of the gradients say to each other. It
// is all they know of each other, so that they may live in different processes.

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
  /// If one was not, nobody has changed its weights.
  bool finite = true;
  /// Wall-clock time of this replica's step, in seconds.
  double seconds = 0;
  /// Of that, adding up the gradients of all replicas.
  double averaging = 0;
  /// Of that, waiting. On a CPU, all time in which the replica's thread did not
  /// run: it waited for the statistics or gradients of the others, or, where
  /// there are fewer cores than replicas, for a core. On a GPU, the exchange of
  /// gradients only, without adding them up.
  double waiting = 0;
};

/// Replica to the master of the gradients: its part of the sum.
struct gradient_part {
  /// Sum of the losses of its samples, divided by the samples of the batch.
  double loss = 0;
  /// Gradient of that. Empty: zero, for a replica without samples.
  flat_array gradient;
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

/// Replica to trainer: its part of the held-out samples.
struct evaluation {
  std::uint64_t samples = 0;
  std::uint64_t correct = 0;
  /// Sum over the samples.
  double loss = 0;
};

template <class Inspector>
auto inspect(Inspector& f, step_plan& x) {
  return detail::inspect_object(
      f, x, "syncnorm::train::step_plan", detail::field("epoch", x.epoch),
      detail::field("step", x.step), detail::field("begin", x.begin),
      detail::field("end", x.end),
      detail::field("learning_rate", x.learning_rate));
}

template <class Inspector>
auto inspect(Inspector& f, step_report& x) {
  return detail::inspect_object(
      f, x, "syncnorm::train::step_report", detail::field("loss", x.loss),
      detail::field("finite", x.finite), detail::field("seconds", x.seconds),
      detail::field("averaging", x.averaging),
      detail::field("waiting", x.waiting));
}

template <class Inspector>
auto inspect(Inspector& f, gradient_part& x) {
  return detail::inspect_object(f, x, "syncnorm::train::gradient_part",
                                detail::field("loss", x.loss),
                                detail::field("gradient", x.gradient));
}

template <class Inspector>
auto inspect(Inspector& f, gradient_sum& x) {
  return detail::inspect_object(
      f, x, "syncnorm::train::gradient_sum", detail::field("loss", x.loss),
      detail::field("gradient", x.gradient), detail::field("finite", x.finite),
      detail::field("seconds", x.seconds));
}

template <class Inspector>
auto inspect(Inspector& f, evaluation& x) {
  return detail::inspect_object(
      f, x, "syncnorm::train::evaluation", detail::field("samples", x.samples),
      detail::field("correct", x.correct), detail::field("loss", x.loss));
}

} // namespace syncnorm::train

CAF_BEGIN_TYPE_ID_BLOCK(syncnorm_train, caf::first_custom_type_id + 300)

CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::flat_array))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::step_plan))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::step_report))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::gradient_part))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::gradient_sum))
CAF_ADD_TYPE_ID(syncnorm_train, (syncnorm::train::evaluation))

CAF_ADD_ATOM(syncnorm_train, syncnorm::train, step_atom, "tr_step")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, evaluate_atom, "tr_eval")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, hash_atom, "tr_hash")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, save_atom, "tr_save")
CAF_ADD_ATOM(syncnorm_train, syncnorm::train, load_atom, "tr_load")

CAF_END_TYPE_ID_BLOCK(syncnorm_train)

namespace syncnorm::train {

/// The master that adds up the gradients.
using gradient_master = sync_master_actor<gradient_part, gradient_sum>;

/// One replica: a model on a device, and the thread that computes with it.
/// Every request is answered; an error's text is one line for the user.
using replica_actor = detail::typed_actor<
    /// From the trainer, to all replicas: one step of the training.
    caf::result<step_report>(step_atom, step_plan),

    /// From the trainer, between steps: the held-out samples [begin, end).
    caf::result<evaluation>(evaluate_atom, std::uint64_t, std::uint64_t),

    /// From the trainer, between steps: a hash of all weights, and of the
    /// running statistics where replicas share them.
    caf::result<std::uint64_t>(hash_atom),

    /// From the trainer, between steps: write a checkpoint to that file, with
    /// the state of the run that the text describes.
    caf::result<void>(save_atom, std::string, std::string),

    /// From the trainer, before the first step: go on from the checkpoint in
    /// that file.
    caf::result<void>(load_atom, std::string)>;

} // namespace syncnorm::train
