#include "syncnorm/nn/synchronize.hpp"

#include "syncnorm/nn/detail/replication_scope.hpp"
#include "syncnorm/nn/module_traits.hpp"

#include <utility>

namespace syncnorm::nn {

void synchronize(caf::actor_system& system,
                 const std::vector<std::shared_ptr<torch::nn::Module>>& copies,
                 SynchronizeOptions options) {
  detail::replication_scope scope{system, std::move(options)};
  release_replicas(copies);
  execute_replication_callbacks(copies);
}

void desynchronize(
    const std::vector<std::shared_ptr<torch::nn::Module>>& copies) {
  release_replicas(copies);
}

void give_up(torch::nn::Module& copy, const std::string& why) {
  fail_replica(&copy, why);
}

} // namespace syncnorm::nn
