#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <caf/io/all.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#if !SYNCNORM_CAF_LEGACY
#include <caf/init_global_meta_objects.hpp>
#endif

namespace syncnorm::detail {

/// Registers the message types of `IdBlocks`; call from the constructor of the
/// configuration class. On 1.x, `init_types` has done it before.
template <class... IdBlocks>
void add_types([[maybe_unused]] caf::actor_system_config& config) {
#if SYNCNORM_CAF_LEGACY
  (config.add_message_types<IdBlocks>(), ...);
#endif
}

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

/// Has `config` read the command line and its configuration file, of 1 MiB at
/// most. The file is read once, so it may be a pipe. `known` are the options of
/// `config`.
/// @returns what is wrong with them, or empty: `--batch=x: ...`; the first
///          argument that is no option; of the file, what stands outside of any
///          group and is no option, and in any group, also one inside another,
///          a value of another type than its option's, as `FILE: batch:
///          expected a whole number, found "many"`. CAF leaves out what a file
///          has wrong without a word, on 1.x of the values only those that it
///          cannot convert.
std::string read_command_line(caf::actor_system_config& config,
                              const caf::config_option_set& known, int argc,
                              char** argv);

/// The configuration file that the command line names, on 1.x also the
/// environment; or empty.
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
  const auto* variable = std::getenv(option->env_var_name_cstr());
  if (name.empty() && variable != nullptr)
    name = variable;
#endif
  return {name.data(), name.size()};
}

/// Where a configuration file may lie that nobody names; the first that is
/// there counts.
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

/// Adds an option that keeps what a configuration file has for it, whatever its
/// type: who reads it refuses it. CAF leaves out a value of another type than
/// the option's without a word, on 1.x one that it cannot convert.
template <class T>
void add_option(caf::config_option_set& options, const std::string& group,
                const std::string& name, const std::string& description) {
  static const auto any_value = [] {
    auto result = *caf::detail::option_meta_state_instance<T>();
#if SYNCNORM_CAF_LEGACY
    result.check = [](const caf::config_value&) { return caf::error{}; };
#else
    result.sync = [](void*, caf::config_value& value) {
      auto converted = caf::get_as<T>(value);
      return converted ? value.assign(*converted) : caf::error{};
    };
#endif
    return result;
  }();
  options.add(caf::config_option{group, name, description, &any_value});
}

/// Whether an option takes a value. 1.x converts it where it can, but a group
/// is no text; of types that are none of these that is not known, and taken for
/// granted.
inline bool takes(const caf::config_option& option,
                  const caf::config_value& value) {
#if SYNCNORM_CAF_LEGACY
  return option.check(value) == caf::none;
#else
  // The option itself could only be asked by storing the value.
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

/// Registers the message types of `IdBlocks`; call before constructing a
/// configuration. Nothing to do on 0.17.
template <class... IdBlocks>
void init_types() {
#if !SYNCNORM_CAF_LEGACY
  caf::core::init_global_meta_objects();
  caf::io::middleman::init_global_meta_objects();
  (caf::init_global_meta_objects<IdBlocks>(), ...);
#endif
}

/// Makes nodes send each other a sign of life in every `interval`, and take one
/// for lost that has sent nothing for `timeout`. Neither is on by default on
/// 0.17.
inline void set_heartbeats(caf::actor_system_config& config,
                           caf::timespan interval, caf::timespan timeout) {
#if SYNCNORM_CAF_LEGACY
  config.set("middleman.heartbeat-interval", interval);
  config.set("middleman.connection-timeout", timeout);
#else
  config.set("caf.middleman.heartbeat-interval", interval);
  config.set("caf.middleman.connection-timeout", timeout);
#endif
}

/// Has messages from other nodes read by the thread that receives them. By
/// default CAF hands them to its workers: another thread has to wake up.
inline void read_where_received(caf::actor_system_config& config) {
#if SYNCNORM_CAF_LEGACY
  config.set("middleman.workers", std::size_t{0});
#else
  config.set("caf.middleman.workers", std::size_t{0});
#endif
}

/// The files of CAF's openssl module, in PEM format.
inline void set_tls_files(caf::actor_system_config& config,
                          const std::string& certificate,
                          const std::string& key, const std::string& ca) {
#if SYNCNORM_CAF_LEGACY
  config.openssl_certificate = certificate;
  config.openssl_key = key;
  config.openssl_cafile = ca;
#else
  config.set("caf.openssl.certificate", certificate);
  config.set("caf.openssl.key", key);
  config.set("caf.openssl.cafile", ca);
#endif
}

/// Has the workers of CAF's scheduler sleep until there is work. By default an
/// idle one looks for some every 50 microseconds: four of them took a sixth of
/// a trainer's time, and find work later than one that is woken.
inline void sleep_when_idle(caf::actor_system_config& config) {
#if SYNCNORM_CAF_LEGACY
  config.set("work-stealing.aggressive-poll-attempts", 0);
  config.set("work-stealing.moderate-poll-attempts", 0);
#else
  config.set("caf.work-stealing.aggressive-poll-attempts", 0);
  config.set("caf.work-stealing.moderate-poll-attempts", 0);
#endif
}

/// Has the workers of CAF's scheduler look for work without a pause, that many
/// times, before they slow down. For actors on several cores that calculate for
/// some microseconds between messages: a worker that gets work tells no other
/// of it, which finds it when it looks.
inline void poll_when_idle(caf::actor_system_config& config,
                           std::size_t attempts) {
#if SYNCNORM_CAF_LEGACY
  config.set("work-stealing.aggressive-poll-attempts", attempts);
#else
  config.set("caf.work-stealing.aggressive-poll-attempts", attempts);
#endif
}

} // namespace syncnorm::detail
