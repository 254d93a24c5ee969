#pragma once

#include "syncnorm/layer_master.hpp"

#include <cstdint>

namespace syncnorm::nn::detail {

/// A copy's place among others that are not replicated together with it.
struct distant_copies {
  std::int64_t copy_id = 0;
  /// How many there are in all; used for copy 0 only.
  std::int64_t copies = 0;
  /// Copy 0 adds its masters, the others find theirs.
  layer_masters masters;
};

} // namespace syncnorm::nn::detail
