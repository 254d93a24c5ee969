#pragma once

#include "syncnorm/device_array.hpp"

#include <cstdint>

namespace syncnorm::detail {

/// What the forward passes of a replica on a device have learned, at some point
/// of its stream.
struct learned_statistics {
  /// As in `statistics_update`; no array if they are not tracked.
  device_array running;
  std::int64_t num_batches_tracked = 0;
  std::int64_t num_elements_tracked = 0;
};

} // namespace syncnorm::detail
