#pragma once

#include "trainer/output/locked_file.hpp"

#include <filesystem>
#include <string>

namespace syncnorm::train {

/// A file whose only purpose is that one process at a time has it. It is
/// removed with the object. A file that a killed process has left locks nobody
/// out.
class named_lock {
public:
  /// @param busy the error if another process has it.
  /// @throws failure with `busy`; that names the file, if it is not empty, as a
  ///         run's lock file is; or with the system's reason.
  named_lock(std::filesystem::path path, const std::string& busy);

  named_lock(const named_lock&) = delete;
  named_lock& operator=(const named_lock&) = delete;

  ~named_lock();

private:
  std::filesystem::path path_;
  locked_file file_;
};

} // namespace syncnorm::train
