#pragma once

#include "syncnorm/message_types.hpp"
#include "syncnorm/nn/detail/replication_scope.hpp"
#include "syncnorm/nn/module_traits.hpp"
#include "syncnorm/nn/synchronize_options.hpp"

#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace syncnorm::nn {

namespace detail {

template <class T>
struct is_std_function : std::false_type {};

template <class Result, class... Args>
struct is_std_function<std::function<Result(Args...)>> : std::true_type {};

/// `replicate` followed by the callbacks on what it returns.
template <class Result, class... Args>
std::function<Result(Args...)>
with_replication_callbacks(caf::actor_system& system,
                           std::function<Result(Args...)> replicate,
                           SynchronizeOptions options) {
  return [&system, replicate = std::move(replicate),
          options = std::move(options)](Args... args) -> Result {
    auto copies = replicate(std::forward<Args>(args)...);
    std::vector<torch::nn::Module*> roots;
    for (auto& copy : copies)
      roots.push_back(copy ? &*copy : nullptr);
    replication_scope scope{system, options, graph_kind::joint};
    release_replicas(std::span<torch::nn::Module* const>{roots});
    execute_replication_callbacks(std::span<torch::nn::Module* const>{roots});
    return copies;
  };
}

} // namespace detail

/// Somebody's own data-parallel object whose replicate step can be wrapped: it
/// has a member `replicate`, a `std::function` that returns the copies for one
/// forward pass, a range of pointers or holders of modules. The object runs
/// each copy on a thread of its own and makes one graph of all, for one
/// backward call.
template <class T>
concept PatchableDataParallel =
    detail::is_std_function<decltype(T::replicate)>::value;

/// Adds the replication callbacks to `data_parallel`: from now on the copies
/// that its `replicate` returns are synchronized. The same results as
/// `DataParallelWithCallback`.
///
/// The object decides whether copies are new for each pass; those that had
/// their callbacks before are released first. If a copy throws outside of a
/// synchronized layer, the others wait for it until the deadline, unless the
/// object calls `give_up` for it.
///
/// `replicate` and the copies wait for actors: not to be called from one of
/// CAF's workers, but from a detached actor or a thread of your own. From now
/// on `replicate` throws what `synchronize` throws.
///
/// @param system spawns the layers' masters; must outlive the object and its
///               copies.
template <PatchableDataParallel DataParallel>
void patch_replication_callback(caf::actor_system& system,
                                DataParallel& data_parallel,
                                SynchronizeOptions options = {}) {
  data_parallel.replicate = detail::with_replication_callbacks(
      system, std::move(data_parallel.replicate), std::move(options));
}

} // namespace syncnorm::nn
