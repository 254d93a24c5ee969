#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>

namespace syncnorm::train {

/// A file that grows while the program runs. After `flush`, the operating
/// system has what was appended.
class growing_file {
public:
  /// Opens `path`, empty unless `keep`.
  /// @throws failure that names the file and the system's reason.
  growing_file(std::filesystem::path path, bool keep);

  /// @throws failure, for example if the disk is full.
  void append(std::string_view bytes);

  /// @throws failure, for example if the disk is full, or the file was deleted.
  void flush();

private:
  struct closer {
    void operator()(std::FILE* file) const noexcept {
      std::fclose(file);
    }
  };

  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, closer> file_;
};

} // namespace syncnorm::train
