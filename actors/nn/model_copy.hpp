#pragma once

#include <torch/nn/module.h>

namespace syncnorm::nn::detail {

/// Completes what `clone()` has made of `model`: gives the children of each
/// `Sequential` the names that libtorch's `clone()` of one drops.
/// @throws error `invalid_argument` where the copy or a part of it is null, of
///         another type than the model's, or has parameters, buffers or
///         children of other names; the text names the part.
void complete_copy(const torch::nn::Module& model, torch::nn::Module* copy);

} // namespace syncnorm::nn::detail
