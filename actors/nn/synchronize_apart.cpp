#include "syncnorm/nn/synchronize_apart.hpp"

#include "actors/nn/distant_copies.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/nn/detail/replication_scope.hpp"
#include "syncnorm/nn/module_traits.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace syncnorm::nn {

namespace {

void replicate_one(caf::actor_system& system,
                   const std::shared_ptr<torch::nn::Module>& copy,
                   SynchronizeOptions options,
                   detail::distant_copies& distant) {
  detail::replication_scope scope{system, std::move(options),
                                  detail::graph_kind::own, nullptr, &distant};
  std::array one{copy};
  release_replicas(one);
  execute_replication_callbacks(one);
}

} // namespace

layer_masters lead_copies(caf::actor_system& system,
                          const std::shared_ptr<torch::nn::Module>& copy,
                          std::int64_t copies, SynchronizeOptions options) {
  if (copies < 1)
    throw error{
        errc::invalid_argument,
        fmt::format("lead_copies: copies: expected 1 or more, got {}", copies)};
  if (options.group_size != 0)
    throw error{errc::invalid_argument,
                fmt::format("lead_copies: group_size: expected 0, got {}",
                            options.group_size)};
  detail::distant_copies distant{0, copies, {}};
  replicate_one(system, copy, std::move(options), distant);
  return std::move(distant.masters);
}

void follow_copies(caf::actor_system& system,
                   const std::shared_ptr<torch::nn::Module>& copy,
                   std::int64_t copy_id, const layer_masters& masters) {
  if (copy_id < 1)
    throw error{errc::invalid_argument,
                fmt::format("follow_copies: copy_id: expected 1 or more, got "
                            "{}",
                            copy_id)};
  detail::distant_copies distant{copy_id, 0, masters};
  replicate_one(system, copy, {}, distant);
}

} // namespace syncnorm::nn
