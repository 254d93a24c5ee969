#pragma once

#include "trainer/output/named_lock.hpp"

#include <filesystem>
#include <optional>
#include <vector>

namespace syncnorm::train {

/// Reserves a folder for the checkpoints of one run, by a file
/// `checkpoint.lock` that is removed with the object. A file that a killed
/// process has left locks nobody out. Folders made for it are removed as well,
/// if they are empty.
class checkpoint_lock {
public:
  /// Makes the folder, and those above it, if they do not exist.
  /// @throws failure as `require_writable_folder`; that names the folder if
  ///         another run has it, or with the system's reason.
  explicit checkpoint_lock(const std::filesystem::path& folder);

  ~checkpoint_lock();

private:
  std::vector<std::filesystem::path> made_;
  std::optional<named_lock> lock_;
};

} // namespace syncnorm::train
