#include "trainer/model/network.hpp"

#include "trainer/failure.hpp"

#include <torch/nn/modules/batchnorm.h>

namespace syncnorm::train {

torch::nn::AnyModule norm_factory::norm1d(std::int64_t channels) const {
  if (kind_ == norm_kind::sync)
    throw failure{"--norm=sync: not in this build"};
  return torch::nn::AnyModule{torch::nn::BatchNorm1d{channels}};
}

torch::nn::AnyModule norm_factory::norm2d(std::int64_t channels) const {
  if (kind_ == norm_kind::sync)
    throw failure{"--norm=sync: not in this build"};
  return torch::nn::AnyModule{torch::nn::BatchNorm2d{channels}};
}

} // namespace syncnorm::train
