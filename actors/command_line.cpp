#include "syncnorm/detail/caf/command_line.hpp"

#include "config_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

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
  // CAF 0.17 and 1.x.
  if (is("real") || is("double"))
    return "a number";
  if (is("timespan") || is("caf::timespan"))
    return "a duration, such as 30s";
  return is("bool") ? "true or false" : "";
}

/// The beginning of a text that is too long for a line.
std::string shortened(std::string text) {
  constexpr std::size_t longest = 200;
  if (text.size() <= longest)
    return text;
  auto size = longest;
  // Not inside a UTF-8 character.
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80)
    --size;
  return text.substr(0, size) + "...";
}

std::string type_problem(const caf::config_option& option,
                         const std::string& name,
                         const caf::config_value& value) {
  if (takes(option, value))
    return "";
  auto expected = expected_by(option);
  if (expected.empty())
    expected =
        std::string{option.type_name().data(), option.type_name().size()};
  if (expected.ends_with("string"))
    expected = "text in quotes";
  if (expected == "a number")
    expected = "a number with a point, such as 1.0";
  return name + ": expected " + expected + ", found "
         + shortened(to_string(value));
}

/// What is wrong with the environment variables that set options. CAF would not
/// say which of them it cannot read.
std::string environment_problem(const caf::config_option_set& known) {
  for (const auto& option : known) {
    const auto* name = variable_of(option);
    if (name == nullptr)
      continue;
    auto problem = type_problem(
        option, name, caf::config_value{std::string{std::getenv(name)}});
    if (!problem.empty())
      return problem;
  }
  return "";
}

/// What is wrong in a group, or in `global`, as CAF calls what is outside of
/// any group. Groups may be somebody else's, and so may their content.
std::string group_problem(const caf::config_option_set& known,
                          const std::string& group,
                          const caf::settings& content) {
  auto outside = group == "global";
  for (const auto& [key, value] : content) {
    auto name = outside ? key : fmt::format("{}.{}", group, key);
    const auto* inner = caf::get_if<caf::settings>(&value);
    std::string problem;
    // CAF would not look for such a file.
    if (outside && key == "config-file")
      problem = "config-file: expected on the command line, not in a file";
    else if (const auto* option = known.qualified_name_lookup(group, key))
      problem = type_problem(*option, name, value);
    else if (inner != nullptr)
      problem = group_problem(known, name, *inner);
    else if (outside)
      problem = name + ": not an option";
    if (!problem.empty())
      return problem;
  }
  return "";
}

/// A configuration file. It is read only once, because it may be a pipe.
struct config_file {
  /// Empty if there is none.
  std::string name;
  std::string text;
  bool is_open = false;
  /// Why it cannot be read.
  std::string problem;
};

config_file read_config_file(const std::string& name) {
  constexpr std::size_t most = 1'048'576;
  config_file result;
  result.name = name;
  std::ifstream in{name};
  result.is_open = in.is_open();
  if (!in)
    result.problem = std::string{"cannot be opened: "} + std::strerror(errno);
  for (char c = 0; result.text.size() <= most && in.get(c);)
    result.text += c;
  if (in.bad())
    result.problem = "cannot be read";
  else if (result.text.size() > most)
    result.problem = fmt::format("expected {} bytes at most", most);
  else if (auto at = result.text.find('\0'); at != std::string::npos)
    // CAF would take it for the end of the text.
    result.problem =
        fmt::format("line {}: expected text, found a NUL byte",
                    std::count(result.text.begin(),
                               result.text.begin() + std::ptrdiff_t(at), '\n')
                        + 1);
  // Without this line end, CAF leaves out a last line that is cut off.
  result.text += '\n';
  return result;
}

config_file find_config_file(caf::actor_system_config& config,
                             const caf::config_option_set& known,
                             const std::vector<std::string>& arguments) {
  if (auto name = named_config_file(known, arguments); !name.empty())
    return read_config_file(name);
  for (const auto& name : default_config_files(config))
    if (auto file = read_config_file(name); file.is_open)
      return file;
  return {};
}

/// The first word of an error's text that is not its category.
std::string cause_in(std::string_view text) {
  constexpr std::string_view category = "parser_error(";
  if (text.starts_with(category))
    text.remove_prefix(category.size());
  std::string result{text.substr(0, text.find_first_of("(,"))};
  std::ranges::replace(result, '_', ' ');
  return result;
}

/// What is wrong with an argument, and what the option takes.
std::string argument_problem(const caf::config_option_set& known,
                             const std::string& argument,
                             const std::string& why) {
  auto name = argument.substr(argument.starts_with("--") ? 2 : 0);
  const auto* option =
      known.cli_long_name_lookup(name.substr(0, name.find('=')));
  auto expected = option == nullptr ? "" : expected_by(*option);
  if (option != nullptr && option->is_flag())
    expected = argument.substr(0, argument.find('=')) + " without a value";
  else if (option != nullptr && argument.find('=') == std::string::npos)
    expected = argument + "=VALUE" + (expected.empty() ? "" : ", " + expected);
  return shortened(argument) + ": " + why
         + (expected.empty() ? "" : ", expected " + expected);
}

/// CAF 1.x takes an option without its value for the end of the command line.
bool lacks_value(const caf::config_option_set& known,
                 const std::string& argument) {
  if (!argument.starts_with("--"))
    return false;
  const auto* option = known.cli_long_name_lookup(argument.substr(2));
  return option != nullptr && !option->is_flag();
}

/// What `parse` could not read, and what the option takes, such as `--batch=x:
/// unexpected character, expected a whole number`. CAF 0.17 says
/// `parser_error(unexpected_character, ({"argument" = "--batch=x"}))`, CAF 1.x
/// `invalid_argument("--batch=x")`.
std::string option_problem(const caf::error& problem,
                           const caf::config_option_set& known) {
  auto text = caf::to_string(problem);
  auto first = text.find('"');
  auto last = text.rfind('"');
  if (first == last)
    return text;
  auto argument = text.substr(first + 1, last - first - 1);
  constexpr std::string_view label = "argument\" = \"";
  if (argument.starts_with(label))
    argument.erase(0, label.size());
  return argument_problem(known, argument, cause_in(text));
}

/// Numbers in CAF's options with which no actor runs, because the scheduler
/// waits for ever or divides by 0, or no actor hears of another node.
std::string crippling_number(const caf::actor_system_config& config) {
  const std::string group = caf_line == 0 ? "" : "caf.";
  for (const auto* name : {"scheduler.max-threads", "scheduler.max-throughput",
                           "work-stealing.aggressive-steal-interval",
                           "work-stealing.moderate-steal-interval",
                           "work-stealing.relaxed-steal-interval",
                           "middleman.max-consecutive-reads"}) {
    auto key = group + name;
    const auto* value = caf::get_if(&caf::content(config), key);
    const auto* x =
        value == nullptr ? nullptr : caf::get_if<std::int64_t>(value);
    if (x != nullptr && *x < 1)
      return fmt::format("{}: expected 1 or more, found {}", key, *x);
  }
  return "";
}

} // namespace

std::string read_command_line(caf::actor_system_config& config,
                              const caf::config_option_set& known, int argc,
                              char** argv, std::string* file_name) {
  constexpr auto hint = "; --help lists the options";
  const std::vector<std::string> arguments{argv + std::min(argc, 1),
                                           argv + argc};
  // CAF takes either for the end of the options.
  for (const auto& x : arguments)
    if (x.empty() || x == "--")
      return fmt::format("unknown argument \"{}\"{}", x, hint);
  if (!arguments.empty() && lacks_value(known, arguments.back()))
    return argument_problem(known, arguments.back(), "missing argument") + hint;
  auto file = find_config_file(config, known, arguments);
  if (!file.problem.empty())
    return fmt::format("{}: {}", file.name, file.problem);
  if (file_name != nullptr)
    *file_name = file.name;
  auto content = parse_config_text(file.text);
  if (!content)
    return fmt::format("{}: {}", file.name,
                       syntax_problem(file.text, content.error()));
  if (auto end = missing_end(file.text); !end.empty())
    return fmt::format("{}: expected {}, found the end", file.name, end);
  if (auto problem = lost_part(file.text); !problem.empty())
    return fmt::format("{}: {}", file.name, problem);
  if (auto problem = environment_problem(known); !problem.empty())
    return problem;
  std::istringstream to_read{file.text};
  if (auto problem = config.parse(argc, argv, to_read))
    return option_problem(problem, known) + hint;
  if (printed_help(config))
    return "";
  if (auto leftover = first_leftover(config); !leftover.empty())
    return fmt::format("unknown argument \"{}\"{}", shortened(leftover), hint);
  if (auto problem = crippling_number(config); !problem.empty())
    return problem;
  auto problem = group_problem(known, "global", *content);
  return problem.empty() ? "" : fmt::format("{}: {}", file.name, problem);
}

} // namespace syncnorm::detail
