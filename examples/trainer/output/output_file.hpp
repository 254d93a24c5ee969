#pragma once

#include <filesystem>

namespace syncnorm::train {

/// The file that writing to `path` changes: if `path` is a link to a file,
/// which need not exist yet, the file itself, so that replacing it leaves the
/// link alone. A device, a pipe, and anything else that does not exist yet stay
/// as named.
/// @param option names it in the error.
/// @throws failure if it is a file, a pipe or a terminal that this program
///         prints to, such as `/dev/stdout`: the output would be lost, or mixed
///         with the file's content.
[[nodiscard]] std::filesystem::path
output_file(const char* option, const std::filesystem::path& path);

} // namespace syncnorm::train
