#pragma once

#include <string>

namespace syncnorm::train {

/// Prints `syncnorm-train: ` and the line to standard error. Whoever cannot be
/// told, for want of a reader or of space, keeps nobody from working.
void complain(const std::string& line) noexcept;

} // namespace syncnorm::train
