#pragma once

#include "syncnorm/message_types.hpp"
#include "syncnorm/nn/synchronize_options.hpp"

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::nn {

/// Makes the synchronized layers of `copies` work as one: for replicas that own
/// their graph and their thread, such as a trainer's replica actors. libtorch's
/// own batch norms stay as they are: `convert_model` first.
///
/// From then on a forward call in training waits until every copy has made it,
/// and so does the backward pass of each layer: every copy must run on a thread
/// of its own (not one of CAF's workers: a detached actor or a plain thread),
/// make the same calls in the same order, and call backward itself. One
/// backward call through the graphs of two copies would wait for itself, until
/// the deadline; for that there is `DataParallelWithCallback`. A backward pass
/// through a call of which another copy has no graph, because it ran under
/// `NoGradGuard` or with an input and parameters that want no gradient, is
/// refused; copies in several processes wait until the deadline.
///
/// Copies may be on any mix of devices, several on one. Two kinds of backward
/// pass need a CUDA device for each copy that is not on a CPU, and are refused
/// where two share one: a pass for second derivatives, and one by
/// `autograd::grad` that leaves out the gradient of a layer's input. They wait
/// for the other copies on libtorch's one thread of the device; other passes
/// wait on the thread that calls backward.
///
/// A layer may be called several times in a pass, if all copies pass backward
/// through its calls in the same order: one that does not is named in an error.
/// On CUDA devices each of these calls must depend on the one before: a
/// backward pass that comes to one before another is done is refused.
///
/// The copies are models of one shape, made for example by `clone()`, which
/// drops `requires_grad=false`: such copies of a frozen model are not frozen.
/// It drops the names of a `Sequential`'s children, too (that of libtorch 2.15
/// does not), and makes two of one that stands there twice: beside such a model
/// its clones are refused, but not beside each other. Their position is their
/// identifier. Layers that differ in their number of channels, or of which one
/// has weights or running statistics and another has not, are of different
/// shapes. A call in which copies differ in epsilon, its mode or momentum is
/// refused. Copy 0's running statistics and counters count; the other copies
/// take over the results, so that all stay equal. Gradients of parameters stay
/// local: added up, they are the whole batch's if the copies' losses add up to
/// its loss, so that means are weighed by each copy's share of the samples.
///
/// Copies that were synchronized before are released first, also after an
/// error. A layer that copies of another set have, too, leaves that set, whose
/// next call fails. A single copy sends no message.
///
/// This call waits until the masters, which are actors, have answered: none of
/// CAF's workers may make it either. If all of them are in here, it waits for
/// ever.
///
/// Keep a copy, and do not release it, until its backward passes are done: one
/// that comes later is refused as `stale`. An output, or another part of a
/// graph, keeps no copy alive; libtorch itself keeps parts of one on a thread
/// whose backward call has thrown.
///
/// @param system spawns the masters, one a layer; must outlive the copies, or
///               at least their release, else its destructor waits for ever.
/// @throws error `invalid_argument` if there are no copies, one is null, two
///         differ in shape (naming the first difference) or share a layer, or
///         `options` are wrong.
///
///     nn::synchronize(system, copies);
///     // on the thread of replica r:
///     auto loss = f(copies[r]->forward(x[r]));
///     loss.backward();
void synchronize(caf::actor_system& system,
                 const std::vector<std::shared_ptr<torch::nn::Module>>& copies,
                 SynchronizeOptions options = {});

/// The same for owners of modules of another static type.
template <class Module>
void synchronize(caf::actor_system& system,
                 const std::vector<std::shared_ptr<Module>>& copies,
                 SynchronizeOptions options = {}) {
  synchronize(system,
              std::vector<std::shared_ptr<torch::nn::Module>>{copies.begin(),
                                                              copies.end()},
              std::move(options));
}

/// Releases the copies: each layer is a plain batch norm again.
/// @throws error `invalid_argument` if one is null, before any is released.
void desynchronize(
    const std::vector<std::shared_ptr<torch::nn::Module>>& copies);

/// The same for owners of modules of another static type.
template <class Module>
void desynchronize(const std::vector<std::shared_ptr<Module>>& copies) {
  desynchronize(std::vector<std::shared_ptr<torch::nn::Module>>{copies.begin(),
                                                                copies.end()});
}

/// Tells the other copies that `copy` does not go on, and why: those that wait
/// for it, now or later, get `participant_failed` with that reason at once.
/// Call it from the thread of the copy, for example when its step has thrown
/// outside of a synchronized layer; a layer that throws, forward or backward,
/// has done so itself. It is `fail_replica`: modules of your own that are
/// `replicable` are told as well.
/// @throws what such a module throws first, when all have been told.
void give_up(torch::nn::Module& copy, const std::string& why);

} // namespace syncnorm::nn
