#pragma once

#include <torch/nn/module.h>

#include <vector>

namespace syncnorm::nn::detail {

/// Whether `m` is one of libtorch's own norms with running statistics.
[[nodiscard]] bool is_libtorch_norm(const torch::nn::Module& m);

/// Makes `copies` follow `model` in the next forward pass; see
/// `replica_set::refresh`. They have the model's parts by the same names.
/// @param devices one for each copy.
/// @throws error `invalid_argument` for a parameter or buffer that a copy
///         shares with the model or with another copy and that could not be
///         used that way: it requires a gradient, is of a module in training,
///         or belongs on another device. What came before it already follows
///         the model.
void follow_model(torch::nn::Module& model,
                  const std::vector<torch::nn::Module*>& copies,
                  const std::vector<torch::Device>& devices);

} // namespace syncnorm::nn::detail
