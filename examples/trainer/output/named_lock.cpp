#include "trainer/output/named_lock.hpp"

#include "trainer/failure.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace syncnorm::train {

named_lock::named_lock(std::filesystem::path path, const std::string& busy)
    : path_{std::move(path)},
      file_{path_, std::chrono::milliseconds{0}} {
  if (file_.code() == EWOULDBLOCK)
    throw failure{busy};
  if (file_.code() != 0)
    throw failure{fmt::format("{}: cannot be locked: {}", path_.string(),
                              std::strerror(file_.code()))};
  struct stat found {};
  if (::fstat(file_.number(), &found) == 0 && found.st_size != 0)
    throw failure{fmt::format("{}: expected an empty file, as a run that was "
                              "killed leaves it, or none, found {} bytes",
                              path_.string(), found.st_size)};
}

named_lock::~named_lock() {
  // Removed while it is still locked: nobody else can have it.
  ::unlink(path_.c_str());
}

} // namespace syncnorm::train
