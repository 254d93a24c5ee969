#include "syncnorm/nn/scatter_gather.hpp"

#include "syncnorm/error.hpp"

#include <algorithm>
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstddef>

namespace syncnorm::nn {

namespace {

/// If the copies' inputs were views of one tensor, autograd could not tell one
/// copy's writes to its input from another's.
void separate_aliases(std::vector<at::Tensor>& parts, const at::Tensor& of) {
  auto is_alias = [&](const auto& part) { return part.is_alias_of(of); };
  if (std::ranges::count_if(parts, is_alias) < 2)
    return;
  for (auto& part : parts)
    if (is_alias(part))
      part = part.clone();
}

} // namespace

std::vector<torch::Tensor> scatter(const torch::Tensor& x,
                                   const std::vector<torch::Device>& devices,
                                   std::int64_t dim) {
  if (devices.empty())
    throw error{errc::invalid_argument,
                "scatter: devices: expected 1 or more, got none"};
  if (!x.defined())
    throw error{errc::invalid_argument,
                "scatter: x: expected a tensor, got an undefined one"};
  if (dim < -x.dim() || dim >= x.dim())
    throw error{errc::invalid_argument,
                fmt::format("scatter: dim: expected one of a tensor of {} "
                            "dimensions, got {}",
                            x.dim(), dim)};
  auto parts = x.tensor_split(static_cast<std::int64_t>(devices.size()), dim);
  for (std::size_t r = 0; r < parts.size(); ++r)
    parts[r] = parts[r].to(devices[r]);
  separate_aliases(parts, x);
  return parts;
}

torch::Tensor gather(const std::vector<torch::Tensor>& parts,
                     torch::Device device, std::int64_t dim) {
  if (parts.empty())
    throw error{errc::invalid_argument,
                "gather: parts: expected 1 or more, got none"};
  std::vector<torch::Tensor> here;
  for (const auto& part : parts)
    here.push_back(part.to(device));
  if (here.size() == 1)
    return here[0];
  return here[0].dim() == 0 ? at::stack(here) : at::cat(here, dim);
}

} // namespace syncnorm::nn
