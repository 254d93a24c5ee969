#include "syncnorm/config.hpp"

#include "syncnorm/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace syncnorm {

namespace {

constexpr std::array policies{
    std::pair{std::string_view{"fail-round"}, failure_policy::fail_round},
    std::pair{std::string_view{"continue-with-survivors"},
              failure_policy::continue_with_survivors},
};

constexpr std::array levels{
    std::pair{std::string_view{"quiet"}, log_level::quiet},
    std::pair{std::string_view{"error"}, log_level::error},
    std::pair{std::string_view{"warning"}, log_level::warning},
    std::pair{std::string_view{"info"}, log_level::info},
    std::pair{std::string_view{"debug"}, log_level::debug},
};

constexpr std::array<std::string_view, 5> option_names{
    "deadline", "failure-policy", "fan-in", "log-level", "max-message"};

/// CAF's own messages must pass.
constexpr std::int64_t least_max_message = 65'536;

/// CAF 0.17 writes a duration that is not positive as "0d".
std::string text_of(const caf::config_value& x) {
  const auto* duration = caf::get_if<caf::timespan>(&x);
  if (duration == nullptr)
    return to_string(x);
  return fmt::format("{:g}s", std::chrono::duration<double>(*duration).count());
}

[[noreturn]] void refuse(std::string_view option, const std::string& expected,
                         const caf::config_value& got) {
  throw error{errc::invalid_argument,
              fmt::format("configuration: syncnorm.{}: expected {}, got {}",
                          option, expected, text_of(got))};
}

void read_deadline(const caf::config_value& value, caf::timespan& out) {
  const auto* deadline = caf::get_if<caf::timespan>(&value);
  if (deadline == nullptr || deadline->count() <= 0 || *deadline > max_deadline)
    refuse("deadline",
           "a duration longer than zero, and of a year at most, such as 30s",
           value);
  out = *deadline;
}

void read_integer(std::string_view option, std::int64_t least,
                  const caf::config_value& value, std::int64_t& out) {
  const auto* x = caf::get_if<std::int64_t>(&value);
  if (x == nullptr || *x < least)
    refuse(option, fmt::format("an integer of {} or more", least), value);
  out = *x;
}

template <class Names, class T>
void read_name(std::string_view option, const Names& names,
               const caf::config_value& value, T& out) {
  if (const auto* name = caf::get_if<std::string>(&value))
    for (const auto& [known, meaning] : names)
      if (known == *name) {
        out = meaning;
        return;
      }
  std::vector<std::string_view> known;
  known.reserve(names.size());
  for (const auto& x : names)
    known.push_back(x.first);
  refuse(option, fmt::format("one of {}", fmt::join(known, ", ")), value);
}

} // namespace

std::string to_string(log_level level) {
  for (const auto& [name, value] : levels)
    if (value == level)
      return std::string{name};
  return "unknown";
}

void add_config_options(caf::config_option_set& options) {
  detail::add_option<caf::timespan>(options, "syncnorm", "deadline",
                                    "how long a round may take");
  detail::add_option<std::string>(options, "syncnorm", "failure-policy",
                                  "fail-round or continue-with-survivors");
  detail::add_option<std::int64_t>(options, "syncnorm", "fan-in",
                                   "messages of a round that one actor takes");
  detail::add_option<std::int64_t>(options, "syncnorm", "max-message",
                                   "most bytes of a message from another node");
  detail::add_option<std::string>(options, "syncnorm", "log-level",
                                  "quiet, error, warning, info or debug");
}

sync_defaults read_defaults(const caf::actor_system_config& config) {
  sync_defaults result;
  const auto* value = caf::get_if(&caf::content(config), "syncnorm");
  if (value == nullptr)
    return result;
  const auto* group = caf::get_if<caf::settings>(value);
  if (group == nullptr)
    throw error{errc::invalid_argument,
                fmt::format("configuration: syncnorm: expected a group of "
                            "options, got {}",
                            to_string(*value))};
  for (const auto& [name, x] : *group) {
    if (name == "deadline")
      read_deadline(x, result.deadline);
    else if (name == "failure-policy")
      read_name(name, policies, x, result.policy);
    else if (name == "fan-in")
      read_integer(name, 2, x, result.fan_in);
    else if (name == "max-message")
      read_integer(name, least_max_message, x, result.max_message);
    else if (name == "log-level")
      read_name(name, levels, x, result.log);
    else
      throw error{errc::invalid_argument,
                  fmt::format("configuration: syncnorm.{}: there is no such "
                              "option, expected one of {}",
                              std::string{name},
                              fmt::join(option_names, ", "))};
  }
  return result;
}

sync_options resolve(sync_options options,
                     const caf::actor_system_config& config) {
  options.validate();
  auto defaults = read_defaults(config);
  options.deadline = options.deadline.value_or(defaults.deadline);
  options.policy = options.policy.value_or(defaults.policy);
  options.fan_in = options.fan_in.value_or(defaults.fan_in);
  return options;
}

} // namespace syncnorm
