#include "trainer/output/growing_file.hpp"

#include "trainer/failure.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace syncnorm::train {

growing_file::growing_file(std::filesystem::path path, bool keep)
    : path_{std::move(path)},
      file_{std::fopen(path_.c_str(), keep ? "ab" : "wb")} {
  if (!file_)
    fail("cannot be opened");
}

void growing_file::append(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size())
    fail("cannot be written");
}

void growing_file::flush() {
  if (std::fflush(file_.get()) != 0)
    fail("cannot be written");
  // What is appended to a file without a name is lost.
  struct stat about {};
  if (::fstat(fileno(file_.get()), &about) == 0 && S_ISREG(about.st_mode)
      && about.st_nlink == 0)
    throw failure{fmt::format("{}: was deleted", path_.string())};
}

void growing_file::fail(const char* what) const {
  throw failure{
      fmt::format("{}: {}: {}", path_.string(), what, std::strerror(errno))};
}

} // namespace syncnorm::train
