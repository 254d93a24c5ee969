#pragma once

#include "syncnorm/detail/caf/line.hpp"

#if SYNCNORM_CAF_LEGACY
#include <caf/logger.hpp>
#endif

namespace syncnorm::detail {

/// For code that makes or runs actors on a thread that may outlive the actor
/// system, such as one of a pool. CAF 0.17 leaves a reference to the system's
/// logger in such a thread, and the end of the system waits for it to go: for
/// ever, if the thread lives on. A reference that comes while this object lives
/// goes with it.
class logger_guard {
public:
#if SYNCNORM_CAF_LEGACY
  logger_guard() noexcept : before_{caf::logger::current_logger()} {}

  ~logger_guard() {
    if (caf::logger::current_logger() != before_)
      caf::logger::set_current_actor_system(nullptr);
  }
#else
  logger_guard() noexcept {}

  ~logger_guard() {}
#endif

  logger_guard(const logger_guard&) = delete;
  logger_guard& operator=(const logger_guard&) = delete;

#if SYNCNORM_CAF_LEGACY
private:
  /// Only compared: the thread keeps it, and nobody else may.
  const void* before_;
#endif
};

} // namespace syncnorm::detail
