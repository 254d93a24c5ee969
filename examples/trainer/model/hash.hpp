#pragma once

#include "trainer/model/network.hpp"

#include <torch/types.h>

#include <cstdint>
#include <vector>

// Hashes by which replicas of several processes compare their models: FNV-1a,
// 64 bits, of 64-bit words.

namespace syncnorm::train {

/// Of the names, types and shapes of a model's weights and statistics.
[[nodiscard]] std::uint64_t fingerprint_of(const network& model);

/// Of the values of `tensors`, on any device.
[[nodiscard]] std::uint64_t hash_of(const std::vector<torch::Tensor>& tensors);

} // namespace syncnorm::train
