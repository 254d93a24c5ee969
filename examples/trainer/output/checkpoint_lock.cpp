#include "trainer/output/checkpoint_lock.hpp"

#include "trainer/failure.hpp"
#include "trainer/output/atomic_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace syncnorm::train {

checkpoint_lock::checkpoint_lock(const std::filesystem::path& folder)
    : made_{require_writable_folder(folder)},
      path_{folder / "checkpoint.lock"},
      file_{path_, std::chrono::milliseconds{0}} {
  if (file_.code() == EWOULDBLOCK)
    throw failure{fmt::format("{}: another run writes its checkpoint here",
                              folder.string())};
  if (file_.code() != 0)
    throw failure{fmt::format("{}: cannot be locked: {}", path_.string(),
                              std::strerror(file_.code()))};
}

checkpoint_lock::~checkpoint_lock() {
  // While it is still locked: nobody else can have it.
  ::unlink(path_.c_str());
  remove_empty_folders(made_);
}

} // namespace syncnorm::train
