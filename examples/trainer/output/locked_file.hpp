#pragma once

#include <chrono>
#include <filesystem>

namespace syncnorm::train {

/// @throws failure that names `path` if it is a link, a folder, a pipe or a
///         device: what it leads to is somebody else's.
void require_file_or_none(const std::filesystem::path& path);

/// Whether `path` names the file that is open under that number.
[[nodiscard]] bool is_open_as(int number, const std::filesystem::path& path);

/// A file, made if it does not exist, that only one at a time has open under
/// its name, of all who open it in this way. The lock ends with the object, and
/// with the process, however that ends: what a killed process has left is used
/// again. Where the file system has no locks, everybody gets the lock.
class locked_file {
public:
  /// @param patience how long to wait for another holder of the lock.
  /// @throws failure as `require_file_or_none`.
  locked_file(const std::filesystem::path& path,
              std::chrono::milliseconds patience);

  locked_file(const locked_file&) = delete;
  locked_file& operator=(const locked_file&) = delete;

  ~locked_file();

  /// 0, or the system's error code: `EWOULDBLOCK` if another one kept the lock.
  [[nodiscard]] int code() const noexcept {
    return code_;
  }

  /// The descriptor, if there was no error.
  [[nodiscard]] int number() const noexcept {
    return number_;
  }

private:
  void open(const std::filesystem::path& path);
  void close() noexcept;

  int number_ = -1;
  int code_ = 0;
};

} // namespace syncnorm::train
