#pragma once

#include "syncnorm/device_array.hpp"

#include <memory>

namespace syncnorm::detail {

/// The work of a stream up to an event, and the memory that this work needs.
/// Stays inside the process.
struct stream_work {
  device_event end;
  /// Released when the event has passed, even if its users are gone by then.
  std::shared_ptr<const void> keep;
};

} // namespace syncnorm::detail
