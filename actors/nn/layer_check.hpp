#pragma once

#include "syncnorm/nn/options.hpp"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>

namespace syncnorm::nn::detail {

/// The checks of one forward call, before anything is computed or sent.
/// @throws error `shape_mismatch`, `dtype_mismatch`, `device_mismatch` or
///         `invalid_argument` that names the layer's kind, the argument, what
///         was expected and what was found.
void check_call(const char* kind, const at::Tensor& input,
                std::size_t dimensions,
                const SynchronizedBatchNormOptions& options,
                const at::Tensor& weight, const at::Tensor& running_mean);

/// "SynchronizedBatchNorm2d features.3"
[[nodiscard]] std::string layer_text(const char* kind, const std::string& path);

} // namespace syncnorm::nn::detail
