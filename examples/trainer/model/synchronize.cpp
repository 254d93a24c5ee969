#include "trainer/model/synchronize.hpp"

#include "trainer/failure.hpp"

#include <torch/nn/modules/batchnorm.h>

namespace syncnorm::train {

void synchronize_models(caf::actor_system&, const std::vector<network_ptr>&) {
  throw failure{"--norm=sync: not in this build"};
}

void give_up_model(network&, const std::string&) noexcept {}

double take_waiting_of(network&) noexcept {
  return 0;
}

bool is_norm(const torch::nn::Module& layer) noexcept {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&layer)
         || dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&layer);
}

} // namespace syncnorm::train
