#pragma once

#include "trainer/output/locked_file.hpp"

#include <filesystem>

namespace syncnorm::train {

/// Keeps a folder for the checkpoints of one run, by a file `checkpoint.lock`
/// that goes with the object. One that a killed process has left locks nobody
/// out.
class checkpoint_lock {
public:
  /// @throws failure that names the folder if another run has it, or with the
  ///         system's reason.
  explicit checkpoint_lock(const std::filesystem::path& folder);

  ~checkpoint_lock();

private:
  std::filesystem::path path_;
  locked_file file_;
};

} // namespace syncnorm::train
