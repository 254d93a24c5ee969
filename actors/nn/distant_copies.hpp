#pragma once

#include "syncnorm/layer_master.hpp"

#include <cstdint>

namespace syncnorm::nn::detail {

/// Where a copy stands among others that are not replicated along with it.
struct distant_copies {
  std::int64_t copy_id = 0;
  /// All of them; counts for copy 0 only.
  std::int64_t copies = 0;
  /// Copy 0 adds its masters, the others find theirs.
  layer_masters masters;
};

} // namespace syncnorm::nn::detail
