#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace syncnorm::train {

/// Writes `content` to `path` whole or not at all: to a temporary file beside
/// it (`<path>.tmp`), flushed to the disk, then renamed; then the folder is
/// flushed. Whenever the process or the machine stops, `path` has either the
/// old content or the new.
/// @throws failure that names the file and the system's reason; the old file is
///         as it was.
void write_atomically(const std::filesystem::path& path,
                      std::string_view content);

/// @throws failure that names the file and the system's reason.
[[nodiscard]] std::string read_whole(const std::filesystem::path& path);

/// Makes `folder`, with those above it, if it is not there.
/// @throws failure that names it if it cannot be made or not written to.
void require_writable_folder(const std::filesystem::path& folder);

} // namespace syncnorm::train
