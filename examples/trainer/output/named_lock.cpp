#include "trainer/output/named_lock.hpp"

#include "trainer/failure.hpp"

#include <fmt/format.h>
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
}

named_lock::~named_lock() {
  // While it is still locked: nobody else can have it.
  ::unlink(path_.c_str());
}

} // namespace syncnorm::train
