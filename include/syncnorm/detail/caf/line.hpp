#pragma once

// Which line of CAF this is. Tests CAF_MAJOR_VERSION, because 1.0 and 1.1
// define CAF_VERSION without its major digit.

#include <caf/all.hpp>

#if CAF_MAJOR_VERSION == 0
#define SYNCNORM_CAF_LEGACY 1
#else
#define SYNCNORM_CAF_LEGACY 0
#endif

namespace syncnorm::detail {

/// The line of CAF: nodes of different lines do not understand each other.
inline constexpr int caf_line = CAF_MAJOR_VERSION;

} // namespace syncnorm::detail
