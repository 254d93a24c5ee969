#include "syncnorm/nn/synchronize.hpp"

#include "syncnorm/nn/module_traits.hpp"
#include "syncnorm/nn/synchronized_batch_norm.hpp"

#include <utility>

namespace syncnorm::nn {

void synchronize(caf::actor_system& system,
                 const std::vector<std::shared_ptr<torch::nn::Module>>& copies,
                 SynchronizeOptions options) {
  replication_scope scope{system, std::move(options)};
  release_replicas(copies);
  execute_replication_callbacks(copies);
}

void desynchronize(
    const std::vector<std::shared_ptr<torch::nn::Module>>& copies) {
  release_replicas(copies);
}

void give_up(torch::nn::Module& copy, const std::string& why) {
  for (const auto& module : copy.modules())
    if (auto* layer = dynamic_cast<SynchronizedBatchNormBase*>(module.get()))
      if (layer->seat())
        layer->seat()->give_up(why);
}

} // namespace syncnorm::nn
