#pragma once

#include "trainer/failure.hpp"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace syncnorm::train {

inline constexpr std::chrono::milliseconds writer_patience{10'000};

/// The new content is in place, but may be lost when the machine stops.
class not_flushed : public failure {
public:
  using failure::failure;
};

/// Writes `content` to `path` completely or not at all: to a temporary file
/// beside it (`<path>.tmp`), flushed to the disk, then renamed; then the folder
/// is flushed. Whenever the process or the machine stops, `path` has either the
/// old content or the new. The new file gets the permissions of the old one.
/// @param patience how long to wait for another writer of the same file.
/// @throws failure as `require_replaceable`, or that names the file and the
///         system's reason; the old file is as it was. A temporary file that a
///         killed process has left is used again.
///         `not_flushed` if it is the folder that cannot be flushed.
void write_atomically(const std::filesystem::path& path,
                      std::string_view content,
                      std::chrono::milliseconds patience = writer_patience);

/// Checks whether `write_atomically` may replace `path`, before anything is
/// computed for it.
/// @throws failure that names the file, if it is there and this process may not
///         write to it; or that names what has the temporary file's name and is
///         not a file.
void require_replaceable(const std::filesystem::path& path);

/// The first bytes of a file, `most` or as many as it has.
/// @throws failure that names the file and the system's reason.
[[nodiscard]] std::string read_beginning(const std::filesystem::path& path,
                                         std::size_t most);

/// @throws failure that names the file and the system's reason.
[[nodiscard]] std::string read_whole(const std::filesystem::path& path);

/// Makes `folder`, and those above it, if it does not exist.
/// @returns the folders made, the innermost first.
/// @throws failure that names the folder if it cannot be made, or if this
///         process may not write in it and flush it, for which it must be
///         readable.
std::vector<std::filesystem::path>
require_writable_folder(const std::filesystem::path& folder);

/// Removes those of `folders`, in order, that exist and are empty.
void remove_empty_folders(const std::vector<std::filesystem::path>& folders);

} // namespace syncnorm::train
