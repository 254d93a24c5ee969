#include "trainer/output/output_file.hpp"

#include "trainer/failure.hpp"
#include "trainer/output/locked_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

namespace syncnorm::train {

namespace {

bool is_dangling(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::is_symlink(file)
         && !std::filesystem::exists(file, ignored);
}

/// The target of a dangling link, by one link or by several.
std::filesystem::path target_of(std::filesystem::path file) {
  constexpr int most = 40;
  std::error_code ignored;
  for (int links = 0; links < most && std::filesystem::is_symlink(file);
       ++links)
    // A target that begins with a slash replaces the whole path.
    file = file.parent_path() / std::filesystem::read_symlink(file, ignored);
  return file;
}

/// Whether what is written to `file` would replace what this program prints, or
/// mix with it. A device that is not a terminal, such as /dev/null, is for all.
bool is_printed_to(const std::filesystem::path& file) {
  auto is_device = std::filesystem::is_character_file(file);
  for (int stream : {STDOUT_FILENO, STDERR_FILENO})
    if (is_open_as(stream, file) && (!is_device || ::isatty(stream) == 1))
      return true;
  return false;
}

} // namespace

std::filesystem::path output_file(const char* option,
                                  const std::filesystem::path& file) {
  if (is_dangling(file))
    return target_of(file);
  if (is_printed_to(file))
    throw failure{fmt::format("{}: expected a file of its own, found {}, which "
                              "this program prints to",
                              option, file.string())};
  if (!std::filesystem::is_regular_file(file)
      || !std::filesystem::is_symlink(file))
    return file;
  std::error_code code;
  auto target = std::filesystem::canonical(file, code);
  if (code)
    throw failure{
        fmt::format("{}: {}: {}", option, file.string(), code.message())};
  return target;
}

} // namespace syncnorm::train
