#pragma once

#include "syncnorm/device_array.hpp"

#include <memory>

namespace syncnorm::detail {

/// What a stream has been given to do, up to an event, and the memory that it
/// needs for that. Stays inside the process.
struct stream_work {
  device_event end;
  /// Given back when the event has passed, whoever has gone meanwhile.
  std::shared_ptr<const void> keep;
};

} // namespace syncnorm::detail
