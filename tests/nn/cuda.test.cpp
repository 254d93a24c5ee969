// Copies on GPUs.

#include "tests/nn/support.hpp"

#include <torch/cuda.h>

namespace syncnorm::nn::test {

namespace {

std::vector<torch::Device> places() {
  std::vector<torch::Device> result;
  auto count = static_cast<std::size_t>(torch::cuda::device_count());
  for (std::size_t i = 0; i < count; ++i)
    result.emplace_back(torch::kCUDA, static_cast<torch::DeviceIndex>(i));
  return result;
}

} // namespace

} // namespace syncnorm::nn::test

#include "tests/nn/device_cases.hpp"
