#pragma once

#include "tests/nn/support.hpp"

#include "syncnorm/nn/synchronize.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace syncnorm::nn::test {

/// Copies of one layer, in groups of the given size, that wait for each other
/// longer than any test takes.
inline std::vector<std::shared_ptr<SynchronizedBatchNorm2dImpl>>
patient_layers(caf::actor_system& system, std::size_t n,
               std::int64_t group_size = 0) {
  std::vector<std::shared_ptr<SynchronizedBatchNorm2dImpl>> result;
  for (std::size_t r = 0; r < n; ++r)
    result.push_back(std::make_shared<SynchronizedBatchNorm2dImpl>(2));
  auto options = patient();
  options.prefix = "the ";
  options.group_size = group_size;
  synchronize(system, result, options);
  return result;
}

} // namespace syncnorm::nn::test
