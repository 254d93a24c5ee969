#pragma once

#include <string>
#include <string_view>

namespace syncnorm::train {

/// Ends `archive`, a zip archive without a comment, with a comment: a CRC-32C
/// of all that comes before it.
void seal(std::string& archive);

/// @throws failure that names `file` if `content` is not what `seal` made, bit
///         for bit.
void check_seal(std::string_view content, const std::string& file);

} // namespace syncnorm::train
