#pragma once

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace syncnorm::nn::detail {

/// Keeps what a model has before libtorch's `clone()`, which gives other,
/// trainable tensors to a part that the model's `reset()` has not made: the
/// copy shares that part.
class model_keeper {
public:
  explicit model_keeper(torch::nn::Module& model);

  /// Restores the memory of the model's parameters and buffers, whether they
  /// are frozen, and the training flags of its parts.
  void restore();

private:
  using tensors = torch::OrderedDict<std::string, torch::Tensor>;

  torch::nn::Module& model_;
  tensors parameters_;
  tensors buffers_;
  std::vector<std::pair<std::string, bool>> training_;
};

} // namespace syncnorm::nn::detail
