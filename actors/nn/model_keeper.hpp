#pragma once

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace syncnorm::nn::detail {

/// What a model has before libtorch's `clone()`, which gives other tensors,
/// trainable ones, to a part that the model's `reset()` has not made: the copy
/// has that part, too.
class model_keeper {
public:
  explicit model_keeper(torch::nn::Module& model);

  /// Gives the model's parameters and buffers their memory back, and whether
  /// they are frozen, and its parts their training flags.
  void restore();

private:
  using tensors = torch::OrderedDict<std::string, torch::Tensor>;

  torch::nn::Module& model_;
  tensors parameters_;
  tensors buffers_;
  std::vector<std::pair<std::string, bool>> training_;
};

} // namespace syncnorm::nn::detail
