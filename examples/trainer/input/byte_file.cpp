#include "trainer/input/byte_file.hpp"

#include "trainer/failure.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#define ZLIB_CONST
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

namespace syncnorm::train {

namespace {

struct file_closer {
  void operator()(std::FILE* file) const noexcept {
    std::fclose(file);
  }
};

using file_handle = std::unique_ptr<std::FILE, file_closer>;

struct inflate_ender {
  void operator()(z_stream* stream) const noexcept {
    inflateEnd(stream);
  }
};

constexpr std::size_t step = std::size_t{1} << 20;

[[noreturn]] void fail_to_read(const std::filesystem::path& path,
                               std::size_t offset, const char* why) {
  throw failure{fmt::format("{}: offset {}: expected more data, found: {}",
                            path.string(), offset, why)};
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

/// Opens a file that has an end and need not be waited for.
file_handle open_file(const std::filesystem::path& path) {
  // Otherwise, this would wait for a pipe that nobody writes to.
  auto number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0)
    fail_to_open(path, errno);
  struct stat found {};
  if (::fstat(number, &found) == 0 && S_ISREG(found.st_mode))
    if (file_handle file{::fdopen(number, "rb")})
      return file;
  ::close(number);
  if (!S_ISREG(found.st_mode))
    throw failure{fmt::format("{}: expected a file, found {}", path.string(),
                              kind_of(found.st_mode))};
  fail_to_open(path, ENOMEM);
}

bool is_gzip(std::span<const std::uint8_t> bytes) {
  return bytes.size() > 1 && bytes[0] == 0x1F && bytes[1] == 0x8B;
}

/// What the members of a gzip file hold, one after the other. `gzread` would
/// silently leave out what follows the members.
std::vector<std::uint8_t> unpack(const std::filesystem::path& path,
                                 std::span<const std::uint8_t> packed) {
  constexpr int gzip_alone = 16 + MAX_WBITS;
  z_stream stream{};
  if (inflateInit2(&stream, gzip_alone) != Z_OK)
    fail_to_open(path, ENOMEM);
  std::unique_ptr<z_stream, inflate_ender> ends{&stream};
  std::vector<std::uint8_t> result;
  for (;;) {
    auto size = result.size();
    result.resize(size + step);
    auto offered = std::min(packed.size(), step);
    stream.next_in = packed.data();
    stream.avail_in = static_cast<uInt>(offered);
    stream.next_out = result.data() + size;
    stream.avail_out = uInt{step};
    auto code = inflate(&stream, Z_NO_FLUSH);
    packed = packed.subspan(offered - stream.avail_in);
    result.resize(size + step - stream.avail_out);
    if (code == Z_OK)
      continue;
    if (code == Z_BUF_ERROR)
      fail_to_read(path, result.size(), "unexpected end of file");
    if (code != Z_STREAM_END)
      fail_to_read(path, result.size(),
                   stream.msg == nullptr ? zError(code) : stream.msg);
    if (packed.empty())
      return result;
    if (!is_gzip(packed))
      throw failure{fmt::format("{}: expected the end of the file behind the "
                                "gzip data, found {} more bytes",
                                path.string(), packed.size())};
    inflateReset(&stream);
  }
}

std::vector<std::uint8_t> read_all(const std::filesystem::path& path) {
  auto file = open_file(path);
  std::vector<std::uint8_t> result;
  for (auto n = step; n == step;) {
    auto size = result.size();
    result.resize(size + step);
    n = std::fread(result.data() + size, 1, step, file.get());
    result.resize(size + n);
  }
  if (std::ferror(file.get()) != 0)
    fail_to_read(path, result.size(), std::strerror(errno));
  return is_gzip(result) ? unpack(path, result) : result;
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
