#pragma once

#include "syncnorm/message_types.hpp"
#include "syncnorm/nn/synchronize_options.hpp"

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::nn {

/// Makes the synchronized layers of `copies` work as one: for replicas that
/// each own a graph and a thread, such as a trainer's replica actors.
/// libtorch's own batch norms stay as they are: call `convert_model` first.
///
/// From then on, a forward call in training waits until every copy has made
/// that call, and the backward pass of each layer waits likewise. So every copy
/// must run on a thread of its own (a detached actor or a plain thread, not one
/// of CAF's workers), make the same calls in the same order, and call backward
/// itself. One backward call through the graphs of two copies would wait for
/// itself until the deadline; for that, use `DataParallelWithCallback`. A
/// backward pass is refused if it goes through a call for which another copy
/// has no graph, because that copy ran under `NoGradGuard` or with an input and
/// parameters that require no gradient; copies in several processes wait until
/// the deadline.
///
/// Copies may be on any mix of devices, also several on one. Two kinds of
/// backward pass need a CUDA device for each copy that is not on a CPU, and are
/// refused where two copies share one: a pass for second derivatives, and a
/// pass by `autograd::grad` that leaves out the gradient of a layer's input.
/// These wait for the other copies on libtorch's only thread for the device;
/// other passes wait on the thread that calls backward.
///
/// A layer may be called several times in a pass if all copies go backward
/// through its calls in the same order; an error names a copy that does not. On
/// CUDA devices each of these calls must depend on the one before: a backward
/// pass that reaches one call before it is done with another is refused.
///
/// The copies are models of one shape, made for example by `clone()`. `clone()`
/// drops `requires_grad=false`: clones of a frozen model are not frozen. It
/// also drops the names of a `Sequential`'s children (libtorch 2.15's `clone()`
/// does not), and makes two of a child that is listed twice: clones of such a
/// model are refused together with the model, but not with each other. A copy's
/// position is its identifier. Layers are of different shapes if they differ in
/// their number of channels, or if one has weights or running statistics and
/// another does not. A call in which copies differ in epsilon, epsilon mode or
/// momentum is refused. Copy 0's running statistics and counters count; the
/// other copies take over the results, so that all stay equal. Gradients of
/// parameters stay local. Their sum over the copies is the whole batch's
/// gradient if the copies' losses add up to the batch's loss: weight a mean by
/// each copy's share of the samples.
///
/// Copies that were synchronized before are released first, also after an
/// error. A layer that also belongs to copies of another set leaves that set,
/// whose next call fails. A single copy sends no message.
///
/// `synchronize` itself waits until the masters, which are actors, have
/// answered, so none of CAF's workers may call it either. If all of them are in
/// this call, it waits forever.
///
/// Keep a copy, and do not release it, until its backward passes are done: a
/// later backward pass is refused as `stale`. An output, or another part of a
/// graph, keeps no copy alive; libtorch itself keeps parts of a graph on a
/// thread whose backward call has thrown.
///
/// @param system spawns the masters, one for each layer; must outlive the
///               copies, or at least their release, else its destructor waits
///               forever.
/// @throws error `invalid_argument` if there are no copies, one is null, two
///         differ in shape (the error names the first difference) or share a
///         layer, or `options` are wrong.
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
/// @throws error `invalid_argument` if a copy is null, before any is released.
void desynchronize(
    const std::vector<std::shared_ptr<torch::nn::Module>>& copies);

/// The same for owners of modules of another static type.
template <class Module>
void desynchronize(const std::vector<std::shared_ptr<Module>>& copies) {
  desynchronize(std::vector<std::shared_ptr<torch::nn::Module>>{copies.begin(),
                                                                copies.end()});
}

/// Tells the other copies that `copy` does not go on, and why: copies that wait
/// for it, now or later, get `participant_failed` with that reason at once.
/// Call `give_up` from the copy's thread, for example when its step has thrown
/// outside of a synchronized layer; a layer that throws, forward or backward,
/// has already told the others itself. Calls `fail_replica`: modules of your
/// own that are `replicable` are told as well.
/// @throws the first exception that such a module throws, when all have been
///         told.
void give_up(torch::nn::Module& copy, const std::string& why);

} // namespace syncnorm::nn
