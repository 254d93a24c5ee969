#include "trainer/run/error_text.hpp"

#include "syncnorm/caf_error.hpp"

namespace syncnorm::train {

std::string text_of(const caf::error& reason) {
  if (code_of(reason)) {
    const auto& context = reason.context();
    if (context.size() == 1 && context.match_elements<std::string>())
      return context.get_as<std::string>(0);
  }
  return first_line(describe(reason));
}

bool is_consequence(const caf::error& reason) {
  auto code = code_of(reason);
  return code && *code >= errc::invalid_identifier
         && *code <= errc::participant_failed;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string printable(std::string_view text, std::size_t longest) {
  std::string result{text.substr(0, longest)};
  for (auto& x : result)
    if (x < ' ' || x > '~')
      x = '?';
  return result;
}

} // namespace syncnorm::train
