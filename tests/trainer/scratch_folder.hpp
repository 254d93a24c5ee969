#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncnorm::train {

/// An empty folder that is removed with the object.
class scratch_folder {
public:
  scratch_folder() {
    auto pattern =
        (std::filesystem::temp_directory_path() / "syncnorm-XXXXXX").string();
    if (!mkdtemp(pattern.data()))
      throw std::runtime_error{"mkdtemp failed for " + pattern};
    path_ = pattern;
  }

  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;

  ~scratch_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const {
    return path_;
  }

  std::filesystem::path operator/(const std::string& name) const {
    return path_ / name;
  }

private:
  std::filesystem::path path_;
};

using bytes = std::vector<std::uint8_t>;

inline void write_bytes(const std::filesystem::path& path, const bytes& data) {
  std::ofstream file{path, std::ios::binary};
  file.write(reinterpret_cast<const char*>(data.data()),
             static_cast<std::streamsize>(data.size()));
}

inline void write_text(const std::filesystem::path& path,
                       const std::string& text) {
  std::ofstream{path, std::ios::binary} << text;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// Returns the text of the exception that `f` throws, or `"nothing was
/// thrown"`.
template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const std::exception& x) {
    return x.what();
  }
  return "nothing was thrown";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// How often `part` occurs in `text`.
inline std::size_t count(const std::string& text, const std::string& part) {
  std::size_t result = 0;
  for (auto at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1))
    ++result;
  return result;
}

} // namespace syncnorm::train
