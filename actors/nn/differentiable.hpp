#pragma once

// Batch norm's backward pass by operations that autograd knows, for second
// derivatives.

#include "actors/nn/batch_norm_node.hpp"
#include "syncnorm/nn/detail/participant.hpp"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <vector>

namespace syncnorm::nn::detail {

/// One copy's tensors, with their history. `weight` may be undefined.
struct differentiable_part {
  at::Tensor x;
  at::Tensor dy;
  at::Tensor weight;
};

/// Returns the gradients of each part's x, weight and bias, as functions of
/// every part's x, dy and weight:
///
///     g = weight * dy,  xmu = x - mean
///     dx = inv_std * (g - sum(g) / N - xmu * inv_std^2 * sum(g * xmu) / N)
///
/// Sums run over all parts; with a seat, over all copies, by rounds.
[[nodiscard]] torch::autograd::variable_list
differentiable_backward(const std::vector<differentiable_part>& parts,
                        const saved_statistics& saved,
                        const participant_ptr& seat);

/// Adds the 2 x C sums of all copies by a round; without history.
/// @param x the copy's input, which names the dtype and the count.
[[nodiscard]] at::Tensor
exchange_sums(participant& seat, const at::Tensor& sums, const at::Tensor& x);

} // namespace syncnorm::nn::detail
