#include "trainer/input/byte_file.hpp"

#include "trainer/failure.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace syncnorm::train {

namespace {

struct gz_closer {
  void operator()(gzFile file) const noexcept {
    gzclose_r(file);
  }
};

using gz_handle = std::unique_ptr<gzFile_s, gz_closer>;

[[noreturn]] void fail_to_read(const std::filesystem::path& path,
                               std::size_t offset, const char* why) {
  throw failure{fmt::format("{}: offset {}: expected more data, found: {}",
                            path.string(), offset, why)};
}

/// zlib's own text begins with its name of an open file, "<fd:3>: ".
const char* text_of(gzFile file) {
  int code = Z_OK;
  const auto* text = gzerror(file, &code);
  if (code == Z_ERRNO)
    return std::strerror(errno);
  auto end = std::string_view{text}.find(">: ");
  return end == std::string_view::npos ? text : text + end + 3;
}

const char* kind_of(mode_t mode) {
  if (S_ISCHR(mode) || S_ISBLK(mode))
    return "a device";
  if (S_ISFIFO(mode))
    return "a named pipe";
  return S_ISDIR(mode) ? "a folder" : "something else";
}

[[noreturn]] void fail_to_open(const std::filesystem::path& path, int code) {
  throw failure{fmt::format("{}: cannot be opened: {}", path.string(),
                            std::strerror(code))};
}

/// Opens what has an end, and need not be waited for.
gz_handle open_file(const std::filesystem::path& path) {
  // A pipe that nobody writes to would be waited for here.
  auto number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0)
    fail_to_open(path, errno);
  struct stat found {};
  if (::fstat(number, &found) == 0 && S_ISREG(found.st_mode))
    if (gz_handle file{gzdopen(number, "rb")})
      return file;
  ::close(number);
  if (!S_ISREG(found.st_mode))
    throw failure{fmt::format("{}: expected a file, found {}", path.string(),
                              kind_of(found.st_mode))};
  fail_to_open(path, ENOMEM);
}

std::vector<std::uint8_t> read_all(const std::filesystem::path& path) {
  auto file = open_file(path);
  std::vector<std::uint8_t> result;
  constexpr std::size_t step = std::size_t{1} << 20;
  std::array<char, 256> why{};
  for (;;) {
    auto size = result.size();
    result.resize(size + step);
    auto n = gzread(file.get(), result.data() + size, unsigned{step});
    result.resize(size + static_cast<std::size_t>(n > 0 ? n : 0));
    if (n == static_cast<int>(step))
      continue;
    int code = Z_OK;
    gzerror(file.get(), &code);
    if (n < 0 || code != Z_OK) {
      std::strncpy(why.data(), text_of(file.get()), why.size() - 1);
      fail_to_read(path, result.size(), why.data());
    }
    return result;
  }
}

} // namespace

byte_file::byte_file(std::filesystem::path path)
    : path_{std::move(path)},
      bytes_{read_all(path_)} {}

std::span<const std::uint8_t> byte_file::take(std::size_t count,
                                              std::string_view what) {
  auto left = bytes_.size() - offset_;
  if (count > left)
    fail(offset_, fmt::format("{} bytes ({})", count, what),
         fmt::format("{} bytes", left));
  auto result = std::span{bytes_}.subspan(offset_, count);
  offset_ += count;
  return result;
}

std::uint32_t byte_file::take_big_endian(std::string_view what) {
  auto bytes = take(4, what);
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16
         | std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

void byte_file::require_end() const {
  if (offset_ != bytes_.size())
    fail(offset_, "the end of the file",
         fmt::format("{} more bytes", bytes_.size() - offset_));
}

void byte_file::fail(std::size_t offset, std::string_view expected,
                     std::string_view found) const {
  throw failure{fmt::format("{}: offset {}: expected {}, found {}",
                            path_.string(), offset, expected, found)};
}

} // namespace syncnorm::train
