#pragma once

#include <string>

namespace syncnorm::train {

/// Prints `syncnorm-train: ` and the line to standard error. A line that cannot
/// be written, for want of a reader or of space, stops nobody from working.
void complain(const std::string& line) noexcept;

} // namespace syncnorm::train
