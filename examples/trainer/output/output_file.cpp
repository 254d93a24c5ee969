#include "trainer/output/output_file.hpp"

#include "trainer/failure.hpp"
#include "trainer/output/locked_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

namespace syncnorm::train {

std::filesystem::path output_file(const char* option,
                                  const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file))
    return file;
  if (is_open_as(STDOUT_FILENO, file) || is_open_as(STDERR_FILENO, file))
    throw failure{fmt::format("{}: expected a file of its own, found {}, which "
                              "this program prints to",
                              option, file.string())};
  if (!std::filesystem::is_symlink(file))
    return file;
  std::error_code code;
  auto target = std::filesystem::canonical(file, code);
  if (code)
    throw failure{
        fmt::format("{}: {}: {}", option, file.string(), code.message())};
  return target;
}

} // namespace syncnorm::train
