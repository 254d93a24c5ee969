#pragma once

#include <filesystem>

namespace syncnorm::train {

/// The file that is changed by writing to `path`: where that is a link to a
/// file, which need not be there yet, the file itself, so that who replaces it
/// leaves the link alone. A device, a pipe, and what else is not there yet are
/// as they were named.
/// @param option names it in the error.
/// @throws failure if it is a file, a pipe or a terminal that this program
///         prints to, such as `/dev/stdout`: its output would be lost, or mixed
///         with the file's content.
[[nodiscard]] std::filesystem::path
output_file(const char* option, const std::filesystem::path& path);

} // namespace syncnorm::train
