#include "trainer/model/network.hpp"

#include "syncnorm/nn/synchronized_batch_norm.hpp"

#include <torch/nn/modules/batchnorm.h>

namespace syncnorm::train {

torch::nn::AnyModule norm_factory::norm1d(std::int64_t channels) const {
  if (kind_ == norm_kind::sync)
    return torch::nn::AnyModule{nn::SynchronizedBatchNorm1d{channels}};
  return torch::nn::AnyModule{torch::nn::BatchNorm1d{channels}};
}

torch::nn::AnyModule norm_factory::norm2d(std::int64_t channels) const {
  if (kind_ == norm_kind::sync)
    return torch::nn::AnyModule{nn::SynchronizedBatchNorm2d{channels}};
  return torch::nn::AnyModule{torch::nn::BatchNorm2d{channels}};
}

} // namespace syncnorm::train
