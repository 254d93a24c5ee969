#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace syncnorm::nn {

/// Splits `x` along `dim` into one part for each device, each on its device.
/// Parts are as equal as possible (the first ones may be longer by one) and may
/// be empty. If several parts would be views of `x`, they are copied, so that
/// each may be written to. Differentiable.
/// @throws error `invalid_argument` if there are no devices or `x` has no such
///         dimension.
[[nodiscard]] std::vector<torch::Tensor>
scatter(const torch::Tensor& x, const std::vector<torch::Device>& devices,
        std::int64_t dim = 0);

/// Joins the parts along `dim` on `device`; several parts without dimensions
/// become a vector. Differentiable.
/// @throws error `invalid_argument` if there are no parts.
[[nodiscard]] torch::Tensor gather(const std::vector<torch::Tensor>& parts,
                                   torch::Device device, std::int64_t dim = 0);

} // namespace syncnorm::nn
