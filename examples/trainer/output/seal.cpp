#include "trainer/output/seal.hpp"

#include "trainer/failure.hpp"
#include "trainer/output/crc32c.hpp"

#include <fmt/format.h>

#include <cstddef>

namespace syncnorm::train {

namespace {

constexpr std::string_view mark = "syncnorm checkpoint, crc32c ";
constexpr std::size_t comment_size = mark.size() + 8;

std::string comment_for(std::string_view archive) {
  return fmt::format("{}{:08x}", mark, crc32c(archive));
}

} // namespace

/// A zip archive ends with the length of its comment, then the comment.
/// Source: PKWARE APPNOTE.TXT, 4.3.16
void seal(std::string& archive) {
  archive.resize(archive.size() - 2);
  archive += static_cast<char>(comment_size);
  archive += '\0';
  archive += comment_for(archive);
}

void check_seal(std::string_view content, const std::string& file) {
  if (content.size() < comment_size
      || !content.substr(content.size() - comment_size).starts_with(mark))
    throw failure{fmt::format("{}: expected a whole checkpoint of this "
                              "program, found another or a damaged file",
                              file)};
  auto archive = content.substr(0, content.size() - comment_size);
  if (auto expected = comment_for(archive); !content.ends_with(expected))
    throw failure{fmt::format("{}: damaged: expected {}, found {}", file,
                              expected, content.substr(archive.size()))};
}

} // namespace syncnorm::train
