#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace syncnorm::train {

/// Writes `content` to `path` whole or not at all: to a temporary file beside
/// it (`<path>.tmp`), flushed to the disk, then renamed; then the folder is
/// flushed. Whenever the process or the machine stops, `path` has either the
/// old content or the new. One who writes the same file at the same time is
/// waited for.
/// @throws failure that names the file and the system's reason; the old file is
///         as it was, or, if it is the folder that cannot be flushed, the new
///         one is there and may be lost when the machine stops.
void write_atomically(const std::filesystem::path& path,
                      std::string_view content);

/// @throws failure that names the file and the system's reason.
[[nodiscard]] std::string read_whole(const std::filesystem::path& path);

/// Makes `folder`, with those above it, if it is not there.
/// @throws failure that names it if it cannot be made, or this process may not
///         write in it and flush it, for which it must be readable.
void require_writable_folder(const std::filesystem::path& folder);

} // namespace syncnorm::train
