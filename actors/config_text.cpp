#include "config_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace syncnorm::detail {

namespace {

/// The number that follows `words`, or 0.
std::size_t number_behind(const std::string& text, std::string_view words) {
  auto at = text.find(words);
  if (at == std::string::npos)
    return 0;
  return std::strtoul(text.c_str() + at + words.size(), nullptr, 10);
}

/// Walks over text as CAF 0.17 reads it, up to the first name that CAF leaves
/// out.
class name_walk {
public:
  explicit name_walk(std::string_view text) : text_{text} {}

  std::string problem() {
    while (at_ < text_.size() && problem_.empty())
      step();
    return problem_;
  }

private:
  void step() {
    auto c = text_[at_];
    if (c == '"' || c == '\'')
      skip_quoted(c);
    else if (c == '<')
      skip_to('>');
    else if (c == ';')
      skip_to('\n');
    else if (may_begin_ && groups_.empty() && c == '[')
      read_section();
    else if (may_begin_ && is_word(c))
      read_word();
    else
      take(c);
  }

  static bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'
           || c == '-';
  }

  void take(char c) {
    ++at_;
    if (c == '{' || c == '[')
      enter_group();
    if ((c == '}' || c == ']') && !groups_.empty())
      groups_.pop_back();
    if (c == '\n' || c == '{' || c == '}' || c == ',')
      may_begin_ = true;
    else if (c != ' ' && c != '\t')
      may_begin_ = false;
  }

  /// An element of a list has no name.
  void enter_group() {
    groups_.push_back(name_.empty() ? fmt::format("[{}]", ++unnamed_)
                                    : std::exchange(name_, ""));
  }

  void skip_quoted(char end) {
    for (++at_; at_ < text_.size() && text_[at_] != end; ++at_)
      if (text_[at_] == '\\')
        ++at_;
    ++at_;
    may_begin_ = false;
  }

  void skip_to(char end) {
    at_ = std::min(text_.find(end, at_), text_.size());
  }

  /// `[section]`; CAF merges sections of the same name.
  void read_section() {
    auto end = std::min(text_.find(']', at_), text_.size());
    section_ = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
  }

  /// A name, if `=` or a group follows.
  void read_word() {
    auto first = at_;
    while (at_ < text_.size() && is_word(text_[at_]))
      ++at_;
    auto word = std::string{text_.substr(first, at_ - first)};
    auto next = text_.find_first_not_of(" \t", at_);
    may_begin_ = false;
    if (next != std::string_view::npos
        && (text_[next] == '=' || text_[next] == '{'))
      add(std::move(word), first, is_group(next));
  }

  /// Whether a group begins there, perhaps behind `=`.
  [[nodiscard]] bool is_group(std::size_t at) const {
    if (text_[at] == '=')
      at = text_.find_first_not_of(" \t", at + 1);
    return at != std::string_view::npos && text_[at] == '{';
  }

  void add(std::string word, std::size_t where, bool is_group) {
    std::string path = section_;
    for (const auto& group : groups_)
      path += (path.empty() ? "" : ".") + group;
    path += (path.empty() ? "" : ".") + word;
    if (path == "global" && is_group)
      problem_ = "global: no group, expected what is in it outside of any";
    else if (!seen_.insert(path).second)
      problem_ = fmt::format("line {}: {}: expected once, found again",
                             line_of(where), path);
    name_ = std::move(word);
  }

  [[nodiscard]] std::ptrdiff_t line_of(std::size_t at) const {
    return 1 + std::ranges::count(text_.substr(0, at), '\n');
  }

  std::string_view text_;
  std::size_t at_ = 0;
  /// Whether a name can begin here.
  bool may_begin_ = true;
  std::string section_;
  /// The groups and lists that this place is in.
  std::vector<std::string> groups_;
  int unnamed_ = 0;
  /// The last name, until its value begins.
  std::string name_;
  std::set<std::string> seen_;
  std::string problem_;
};

} // namespace

// CAF 0.17 says `parser_error(unexpected_character, ({"column" = 9, "line" =
// 1}))`, CAF 1.x `unexpected_character("... invalid syntax in line 1 column
// 9")`.
std::string syntax_problem(const std::string& text, const caf::error& problem) {
  auto said = to_string(problem);
  auto line = number_behind(said, caf_line == 0 ? "\"line\" = " : "in line ");
  auto column =
      number_behind(said, caf_line == 0 ? "\"column\" = " : "column ");
  // CAF does not count a line end at the very beginning.
  if (text.starts_with('\n'))
    ++line;
  // A line end belongs to the line that it ends.
  auto place = said.find("unexpected_newline") == std::string::npos
                   ? fmt::format("line {}, column {}", line, column)
                   : fmt::format("line {}, at its end", line - 1);
  return fmt::format("{}: expected NAME = VALUE, where VALUE is true, false, a "
                     "number, a duration such as 30s, text in double quotes or "
                     "a list in [ ], or a group NAME {{ }}, or a comment "
                     "behind {}",
                     place, caf_line == 0 ? ';' : '#');
}

std::string missing_end(const std::string& text) {
  for (const auto* end : {"}", "]"})
    if (parse_config_text(text + end + '\n'))
      return end;
  return "";
}

std::string lost_part(const std::string& text) {
  return caf_line == 0 ? name_walk{text}.problem() : "";
}

} // namespace syncnorm::detail
