#include "trainer/run/refusal_list.hpp"

#include "trainer/run/error_text.hpp"

#include <utility>

namespace syncnorm::train {

std::optional<std::string> refusal_list::add(const std::string& text) {
  if (told_.size() >= max_lines)
    return std::nullopt;
  auto line = printable(text, 1000);
  if (told_.contains(line))
    return std::nullopt;
  if (told_.size() == max_lines - 1)
    line = "more are refused, and not listed";
  told_.insert(line);
  return line;
}

} // namespace syncnorm::train
