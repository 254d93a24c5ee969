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

/// `replicate`, followed by the callbacks on the copies that it returns.
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

/// A data-parallel object of your own whose replicate step can be wrapped: it
/// has a member `replicate`, a `std::function` that returns the copies for one
/// forward pass, as a range of pointers to modules or of module holders. The
/// object runs each copy on a separate thread and makes one graph of all
/// copies, for one backward call.
template <class T>
concept PatchableDataParallel =
    detail::is_std_function<decltype(T::replicate)>::value;

/// Adds the replication callbacks to `data_parallel`: from now on the copies
/// that its `replicate` returns are synchronized. The results are the same as
/// with `DataParallelWithCallback`.
///
/// The object decides whether copies are new for each pass; copies whose
/// callbacks ran before are released first. If a copy throws outside of a
/// synchronized layer, the others wait for it until the deadline, unless the
/// object calls `give_up` for it.
///
/// `replicate` and the copies wait for actors: call them from a detached actor
/// or a thread of your own, not from one of CAF's workers. From now on
/// `replicate` also throws what `synchronize` throws.
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
