#include "trainer/output/atomic_file.hpp"

#include "trainer/output/locked_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <vector>

namespace syncnorm::train {

namespace {

using std::filesystem::path;

template <class Failure = failure>
[[noreturn]] void fail(const path& file, const char* what, int code) {
  throw Failure{
      fmt::format("{}: {}: {}", file.string(), what, std::strerror(code))};
}

/// An open file that is closed at the end of its scope.
class descriptor {
public:
  explicit descriptor(int number) : number_{number} {}

  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;

  ~descriptor() {
    if (number_ >= 0)
      ::close(number_);
  }

  [[nodiscard]] int number() const noexcept {
    return number_;
  }

private:
  int number_;
};

path temporary_of(path file) {
  file += ".tmp";
  return file;
}

/// Gives the open file the permissions of the one that it will replace.
/// @returns 0, or the system's error code.
int take_permissions(int number, const path& replaced) {
  constexpr mode_t all = 0777;
  struct stat old {};
  struct stat now {};
  if (::stat(replaced.c_str(), &old) != 0)
    return errno == ENOENT ? 0 : errno;
  if (::fstat(number, &now) != 0)
    return errno;
  // Some file systems have only one set of them, and refuse any change.
  if ((old.st_mode & all) == (now.st_mode & all))
    return 0;
  return ::fchmod(number, old.st_mode & all) == 0 ? 0 : errno;
}

/// @returns 0, or the system's error code.
int write_and_flush(int file, std::string_view content) {
  // Any content was left by a killed process.
  if (::ftruncate(file, 0) != 0)
    return errno;
  while (!content.empty()) {
    auto n = ::write(file, content.data(), content.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return errno;
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  return ::fsync(file) == 0 ? 0 : errno;
}

/// `folder` and those above it that do not exist, `folder` first.
std::vector<path> missing_folders(path folder) {
  std::vector<path> result;
  std::error_code code;
  for (; !folder.empty() && !std::filesystem::exists(folder, code);
       folder = folder.parent_path())
    result.push_back(folder);
  return result;
}

} // namespace

void write_atomically(const path& file, std::string_view content,
                      std::chrono::milliseconds patience) {
  require_replaceable(file);
  auto folder = file.has_parent_path() ? file.parent_path() : path{"."};
  // The rename reaches the disk only with its folder: a folder that could not
  // be flushed is refused before anything has changed.
  descriptor in{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (in.number() < 0)
    fail(file, "cannot be written", errno);
  auto temporary = temporary_of(file);
  // One name for all, so that killed processes leave one file at most; the lock
  // keeps a second writer off the file until it has its new name.
  locked_file out{temporary, patience};
  if (out.code() == EWOULDBLOCK)
    throw failure{fmt::format("{}: cannot be written: another process writes "
                              "{}",
                              file.string(), temporary.string())};
  auto code = out.code();
  if (code == 0)
    code = take_permissions(out.number(), file);
  if (code == 0)
    code = write_and_flush(out.number(), content);
  if (out.code() == 0 && code != 0)
    ::unlink(temporary.c_str());
  if (code != 0)
    fail(file, "cannot be written", code);
  if (::rename(temporary.c_str(), file.c_str()) != 0) {
    code = errno;
    ::unlink(temporary.c_str());
    fail(file, "cannot be replaced", code);
  }
  // File systems that cannot flush a folder say EINVAL.
  if (::fsync(in.number()) != 0 && errno != EINVAL)
    fail<not_flushed>(folder, "cannot be flushed", errno);
}

void require_replaceable(const path& file) {
  if (::access(file.c_str(), W_OK) != 0 && errno != ENOENT)
    fail(file, "cannot be written", errno);
  require_file_or_none(temporary_of(file));
}

std::string read_beginning(const path& file, std::size_t most) {
  // Some devices have no end.
  if (std::filesystem::is_character_file(file))
    throw failure{
        fmt::format("{}: expected a file, found a device", file.string())};
  // Otherwise, opening a pipe that nobody writes to would wait.
  descriptor in{::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (in.number() < 0)
    fail(file, "cannot be opened", errno);
  ::fcntl(in.number(), F_SETFL, O_RDONLY);
  std::string result;
  for (;;) {
    auto size = result.size();
    auto step = std::min(most - size, std::size_t{1} << 20);
    result.resize(size + step);
    auto n = ::read(in.number(), result.data() + size, step);
    if (n < 0 && errno != EINTR)
      fail(file, "cannot be read", errno);
    result.resize(size + static_cast<std::size_t>(n > 0 ? n : 0));
    if (n == 0)
      return result;
  }
}

std::string read_whole(const path& file) {
  return read_beginning(file, std::numeric_limits<std::size_t>::max());
}

std::vector<path> require_writable_folder(const path& folder) {
  std::error_code code;
  auto made = missing_folders(folder);
  std::filesystem::create_directories(folder, code);
  if (code) {
    remove_empty_folders(made);
    fail(folder, "cannot be made", code.value());
  }
  if (!std::filesystem::is_directory(folder))
    fail(folder, "cannot be used", ENOTDIR);
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    fail(folder, "cannot be written to", errno);
  if (::access(folder.c_str(), R_OK) != 0)
    fail(folder, "cannot be read, and so not flushed", errno);
  return made;
}

void remove_empty_folders(const std::vector<path>& folders) {
  for (const auto& folder : folders)
    ::rmdir(folder.c_str());
}

} // namespace syncnorm::train
