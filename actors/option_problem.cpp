#include "syncnorm/detail/caf_compat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <string>
#include <string_view>

namespace syncnorm::detail {

namespace {

/// What an option takes if it is a number, a switch or a duration; empty for
/// others.
std::string expected_by(const caf::config_option& option) {
  auto type = option.type_name();
  auto is = [&](std::string_view word) {
    return std::string_view{type.data(), type.size()}.starts_with(word);
  };
  if (is("uint"))
    return "a whole number of 0 or more";
  if (is("int"))
    return "a whole number";
  // 0.17 and 1.x.
  if (is("real") || is("double"))
    return "a number";
  if (is("timespan") || is("caf::timespan"))
    return "a duration, such as 30s";
  return is("bool") ? "true or false" : "";
}

std::string type_problem(const caf::config_option* option,
                         const std::string& name,
                         const caf::config_value& value) {
  if (option == nullptr || takes(*option, value))
    return "";
  auto expected = expected_by(*option);
  if (expected.empty())
    expected =
        std::string{option->type_name().data(), option->type_name().size()};
  else if (expected == "a number")
    expected = "a number with a point, such as 1.0";
  return name + ": expected " + expected + ", found " + to_string(value);
}

/// What stands outside of any group.
std::string value_problem(const caf::config_option_set& known,
                          const std::string& name,
                          const caf::config_value& value) {
  const auto* option = known.qualified_name_lookup("global", name);
  if (option == nullptr)
    return name + ": not an option";
  return type_problem(option, name, value);
}

/// Groups may be somebody else's, and so may what is in them.
std::string group_problem(const caf::config_option_set& known,
                          const std::string& name, const caf::settings& group) {
  for (const auto& [key, value] : group) {
    const auto* option = known.qualified_name_lookup(name, key);
    auto problem = type_problem(option, fmt::format("{}.{}", name, key), value);
    if (!problem.empty())
      return problem;
  }
  return "";
}

} // namespace

// CAF 0.17 says
// `parser_error(unexpected_character, ({"argument" = "--batch=x"}))`, CAF 1.x
// `invalid_argument("--batch=x")`.
std::string option_problem(const caf::error& problem,
                           const caf::config_option_set& known) {
  static const std::regex pattern{
      R"re((?:parser_error\()?(\w+)\W*(?:"argument" = )?)re"
      R"re("((?:--)?([^=]*).*)"\W*)re"};
  auto text = caf::to_string(problem);
  std::smatch parts;
  if (!std::regex_match(text, parts, pattern))
    return text;
  auto why = parts[1].str();
  std::ranges::replace(why, '_', ' ');
  const auto* option = known.cli_long_name_lookup(parts[3].str());
  auto expected = option == nullptr ? "" : expected_by(*option);
  return parts[2].str() + ": " + why
         + (expected.empty() ? "" : ", expected " + expected);
}

std::string config_file_problem(const caf::actor_system_config& config,
                                const caf::config_option_set& known) {
  auto file = config_file(config);
  auto content = caf::actor_system_config::parse_config_file(file.c_str());
  if (!content)
    return "";
  for (const auto& [key, value] : *content) {
    const auto* group = caf::get_if<caf::settings>(&value);
    auto problem = group == nullptr ? value_problem(known, key, value)
                                    : group_problem(known, key, *group);
    if (!problem.empty())
      return fmt::format("{}: {}", file, problem);
  }
  return "";
}

} // namespace syncnorm::detail
