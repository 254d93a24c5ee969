#pragma once

#include "syncnorm/device_array.hpp"

#include <cstdint>

namespace syncnorm::detail {

/// What the passes of a replica on a device have learned, at some point of its
/// stream.
struct learned_statistics {
  /// As in `statistics_update`; no array if they are not tracked.
  device_array running;
  /// No array: the gradient is zero, or there is none.
  device_array weight_gradient;
  device_array bias_gradient;
  std::int64_t num_batches_tracked = 0;
  std::int64_t num_elements_tracked = 0;
};

} // namespace syncnorm::detail
