#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace syncnorm::train {

/// A data file in memory, read from its beginning. Offsets in errors count
/// bytes of the content, which for a gzip file is what it unpacks to.
class byte_file {
public:
  /// Reads `path` whole; unpacks it if it is a gzip file, whatever its name,
  /// with one member or several.
  /// @throws failure if it cannot be read, if it is a damaged gzip file or one
  ///         with other bytes behind it, or if it is not a file: a pipe is not
  ///         waited for.
  explicit byte_file(std::filesystem::path path);

  /// Takes the next `count` bytes.
  /// @param what names the bytes in the error, for example `"60000 labels"`.
  /// @throws failure if fewer are left.
  std::span<const std::uint8_t> take(std::size_t count, std::string_view what);

  /// Takes the next four bytes, the most significant first.
  std::uint32_t take_big_endian(std::string_view what);

  /// @throws failure if bytes are left.
  void require_end() const;

  /// @throws failure, always: `"<path>: offset <offset>: expected <expected>,
  ///         found <found>"`.
  [[noreturn]] void fail(std::size_t offset, std::string_view expected,
                         std::string_view found) const;

  [[nodiscard]] std::size_t offset() const noexcept {
    return offset_;
  }

  [[nodiscard]] std::size_t size() const noexcept {
    return bytes_.size();
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept {
    return path_;
  }

private:
  std::filesystem::path path_;
  std::vector<std::uint8_t> bytes_;
  std::size_t offset_ = 0;
};

} // namespace syncnorm::train
