#pragma once

// Batch norm's backward pass by operations that autograd knows, for second
// derivatives.

#include "actors/nn/backward_part.hpp"
#include "actors/nn/participant.hpp"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <vector>

namespace syncnorm::nn::detail {

/// Returns the gradients of each part's x, weight and bias, as functions of
/// every part's x, dy and weight:
///
///     g = weight * dy,  xmu = x - mean
///     dx = inv_std * (g - sum(g) / N - xmu * inv_std^2 * sum(g * xmu) / N)
///
/// Sums run over all parts; with a seat, over all copies, by rounds, for which
/// the calling thread waits.
/// The mean is that of the forward pass plus sum(x - mean) / N.
///
/// @param parts their x, dy and weight have their history.
[[nodiscard]] torch::autograd::variable_list
differentiable_backward(const std::vector<backward_part>& parts,
                        const participant_ptr& seat);

} // namespace syncnorm::nn::detail
