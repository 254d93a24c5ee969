#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

namespace syncnorm::detail {

/// Whether the command line asked for help, which `parse` has printed.
inline bool printed_help(const caf::actor_system_config& config) {
#if SYNCNORM_CAF_LEGACY
  return config.cli_helptext_printed;
#else
  return config.helptext_printed();
#endif
}

/// The first argument of the command line that is no option, or empty.
inline std::string first_leftover(const caf::actor_system_config& config) {
#if SYNCNORM_CAF_LEGACY
  const auto& arguments = config.remainder;
#else
  const auto& arguments = config.remainder();
#endif
  return arguments.empty() ? std::string{} : arguments[0];
}

/// Makes `config` read the command line and its configuration file, of 1 MiB at
/// most. The file is read once, so it may be a pipe. `known` are the options of
/// `config`.
/// @returns what is wrong with them, or empty: `--batch=x: ...`; the first
///          argument that is no option; of the file, that it is cut off, what
///          is outside of any group and is no option, and in any group, even a
///          nested one, a value of another type than its option's, as
///          `FILE: batch: expected a whole number, found "many"`; on 0.17 also
///          a group `global { }`, and a name that occurs there twice. CAF
///          silently skips what a file has wrong; on 1.x, of the values, only
///          those that it cannot convert. Of CAF's numbers, one below 1 with
///          which no actor runs, or none hears of other nodes. On 1.x, of an
///          environment variable, a value that its option does not take, as
///          `SYNCNORM_DEADLINE: expected a duration, ...`.
/// @param file gets the name of the configuration file, unless it is null;
///             empty if there is none.
std::string read_command_line(caf::actor_system_config& config,
                              const caf::config_option_set& known, int argc,
                              char** argv, std::string* file = nullptr);

/// The environment variable that sets an option; null if none is set, as on
/// 0.17, which reads none.
inline const char* variable_of(const caf::config_option& option) {
#if SYNCNORM_CAF_LEGACY
  static_cast<void>(option);
  return nullptr;
#else
  const auto* name = option.env_var_name_cstr();
  return std::getenv(name) == nullptr ? nullptr : name;
#endif
}

/// The configuration file that the command line or, on 1.x, the environment
/// names; or empty.
inline std::string
named_config_file(const caf::config_option_set& known,
                  const std::vector<std::string>& arguments) {
  const auto* option = known.qualified_name_lookup("global", "config-file");
#if SYNCNORM_CAF_LEGACY
  auto name =
      caf::find_by_long_name(*option, arguments.begin(), arguments.end())
          .second;
#else
  auto name =
      option->find_by_long_name(arguments.begin(), arguments.end()).value;
  const auto* variable = variable_of(*option);
  if (name.empty() && variable != nullptr)
    name = std::getenv(variable);
#endif
  return {name.data(), name.size()};
}

/// Where a configuration file may lie if none is named; the first that exists
/// counts.
inline std::vector<std::string>
default_config_files(caf::actor_system_config& config) {
#if SYNCNORM_CAF_LEGACY
  return {config.config_file_path};
#else
  auto names = config.config_file_paths();
  if (names.empty())
    return {"caf-application.conf"};
  return {names.begin(), names.end()};
#endif
}

/// Whether an option takes a value. 1.x converts it where it can, but a group
/// is no text; for option types that are none of these this is unknown, and
/// assumed.
inline bool takes(const caf::config_option& option,
                  const caf::config_value& value) {
#if SYNCNORM_CAF_LEGACY
  return option.check(value) == caf::none;
#else
  // The option itself would have to store the value to check it.
  auto converts = [&]<class... Ts>(std::type_identity<Ts>...) {
    return (...
            && (option.type_name() != caf::config_value::mapped_type_name<Ts>()
                || caf::get_as<Ts>(value)));
  };
  using std::type_identity;
  if (option.type_name() == caf::config_value::mapped_type_name<std::string>())
    return caf::get_if<caf::settings>(&value) == nullptr;
  return converts(type_identity<bool>{}, type_identity<std::int64_t>{},
                  type_identity<std::uint64_t>{}, type_identity<double>{},
                  type_identity<caf::timespan>{});
#endif
}

} // namespace syncnorm::detail
