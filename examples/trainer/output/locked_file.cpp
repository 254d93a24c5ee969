#include "trainer/output/locked_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace syncnorm::train {

namespace {

/// @returns 0, or the system's error code.
int lock(int number, if_locked then) {
  auto how = then == if_locked::wait ? LOCK_EX : LOCK_EX | LOCK_NB;
  while (::flock(number, how) != 0)
    if (errno != EINTR)
      return errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP ? 0
                                                                       : errno;
  return 0;
}

} // namespace

bool is_open_as(int number, const std::filesystem::path& path) {
  struct stat ours {};
  struct stat named {};
  return ::fstat(number, &ours) == 0 && ::stat(path.c_str(), &named) == 0
         && ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

locked_file::locked_file(const std::filesystem::path& path, if_locked then) {
  do {
    close();
    number_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    code_ = number_ < 0 ? errno : lock(number_, then);
    // Whoever had the lock before may have renamed or removed the file.
  } while (code_ == 0 && !is_open_as(number_, path));
}

locked_file::~locked_file() {
  close();
}

void locked_file::close() noexcept {
  if (auto number = std::exchange(number_, -1); number >= 0)
    ::close(number);
}

} // namespace syncnorm::train
