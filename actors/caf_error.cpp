#include "syncnorm/message_types.hpp"

#include "syncnorm/caf_error.hpp"

#include <utility>

namespace syncnorm {

namespace {

/// `"kill"`: each CAF release line writes different text around it.
std::string exit_text(const caf::error& x) {
  auto text = to_string(static_cast<caf::exit_reason>(x.code()));
  auto colon = text.rfind(':');
  return colon == std::string::npos ? text : text.substr(colon + 1);
}

} // namespace

caf::error make_error(errc code, std::string text) {
  return caf::make_error(code, std::move(text));
}

caf::error to_caf_error(const error& x) {
  return make_error(x.code(), x.what());
}

std::optional<errc> code_of(const caf::error& x) {
  auto code = errc::none;
  if (detail::has_category<errc>(x) && from_integer(x.code(), code))
    return code;
  return std::nullopt;
}

std::string text_of(const caf::error& x) {
  if (detail::is_exit(x) && x.context().empty())
    return exit_text(x);
  if (!code_of(x))
    return detail::error_text(x);
  const auto& context = x.context();
  if (context.size() == 1 && context.match_elements<std::string>())
    return context.get_as<std::string>(0);
  return {};
}

std::string describe(const caf::error& x) {
  auto code = code_of(x);
  auto text = text_of(x);
  if (!code)
    return text;
  return text.empty() ? to_string(*code) : to_string(*code) + ": " + text;
}

} // namespace syncnorm
