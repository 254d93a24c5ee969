#pragma once

#include "syncnorm/nn/synchronized_batch_norm_options.hpp"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>

namespace syncnorm::nn::detail {

/// The vectors of a layer; each is undefined if the layer has no such vector.
struct layer_vectors {
  const at::Tensor& weight;
  const at::Tensor& bias;
  const at::Tensor& running_mean;
  const at::Tensor& running_var;
};

/// The checks of one forward call, before anything is computed or sent.
/// @throws error `shape_mismatch`, `dtype_mismatch`, `device_mismatch`,
///         `device_unavailable` or `invalid_argument` that names the layer's
///         kind, the argument, what was expected and what was found.
void check_call(const char* kind, const at::Tensor& input,
                std::size_t dimensions,
                const SynchronizedBatchNormOptions& options,
                const layer_vectors& vectors);

/// "SynchronizedBatchNorm2d features.3"
[[nodiscard]] std::string layer_text(const char* kind, const std::string& path);

} // namespace syncnorm::nn::detail
