#include "trainer/output/checkpoint_lock.hpp"

#include "trainer/output/atomic_file.hpp"

#include <fmt/format.h>

namespace syncnorm::train {

checkpoint_lock::checkpoint_lock(const std::filesystem::path& folder)
    : made_{require_writable_folder(folder)} {
  lock_.emplace(folder / "checkpoint.lock",
                fmt::format("{}: another run writes its checkpoint here",
                            folder.string()));
}

checkpoint_lock::~checkpoint_lock() {
  lock_.reset();
  remove_empty_folders(made_);
}

} // namespace syncnorm::train
