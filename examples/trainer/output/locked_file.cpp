#include "trainer/output/locked_file.hpp"

#include "trainer/failure.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

namespace syncnorm::train {

namespace {

/// How many times a name may lead to another file while one is being locked.
constexpr int max_changes = 100;
/// Between two attempts to get a lock that another one has.
constexpr std::chrono::milliseconds pause{10};

/// @returns 0, or the system's error code.
int lock(int number) {
  if (::flock(number, LOCK_EX | LOCK_NB) == 0)
    return 0;
  return errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP ? 0 : errno;
}

bool is_regular(int number) {
  struct stat found {};
  return ::fstat(number, &found) == 0 && S_ISREG(found.st_mode);
}

/// Null for a file, and for what does not exist.
const char* obstacle(std::filesystem::file_type type) {
  using enum std::filesystem::file_type;
  switch (type) {
  case none:
  case not_found:
  case regular:
    return nullptr;
  case symlink:
    return "a link";
  case directory:
    return "a folder";
  default:
    return "something else";
  }
}

} // namespace

void require_file_or_none(const std::filesystem::path& path) {
  std::error_code ignored;
  auto type = std::filesystem::symlink_status(path, ignored).type();
  if (const auto* found = obstacle(type))
    throw failure{fmt::format("{}: expected a file or none, found {}",
                              path.string(), found)};
}

bool is_open_as(int number, const std::filesystem::path& path) {
  struct stat ours {};
  struct stat named {};
  return ::fstat(number, &ours) == 0 && ::stat(path.c_str(), &named) == 0
         && ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

locked_file::locked_file(const std::filesystem::path& path,
                         std::chrono::milliseconds patience) {
  using clock = std::chrono::steady_clock;
  auto until = clock::now() + patience;
  for (open(path); code_ == EWOULDBLOCK && clock::now() < until; open(path))
    std::this_thread::sleep_for(pause);
}

void locked_file::open(const std::filesystem::path& path) {
  for (int i = 0; i < max_changes; ++i) {
    close();
    // Does not wait for a terminal or the like.
    number_ =
        ::open(path.c_str(),
               O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    code_ = number_ < 0 ? errno : 0;
    if (code_ != 0 || !is_regular(number_)) {
      close();
      require_file_or_none(path);
      if (code_ != 0)
        return;
      // Another file has taken the name since this one was opened.
      code_ = EWOULDBLOCK;
      continue;
    }
    code_ = lock(number_);
    if (code_ != 0 || is_open_as(number_, path))
      return;
    // The previous holder of the lock has renamed or removed the file.
    code_ = EWOULDBLOCK;
  }
}

locked_file::~locked_file() {
  close();
}

void locked_file::close() noexcept {
  if (auto number = std::exchange(number_, -1); number >= 0)
    ::close(number);
}

} // namespace syncnorm::train
