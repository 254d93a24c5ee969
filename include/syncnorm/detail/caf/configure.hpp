#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <caf/io/all.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

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

/// What `config.parse` could not read, and what the option takes, as
/// `--batch=x: unexpected character, expected a whole number`.
std::string option_problem(const caf::error& problem,
                           const caf::config_option_set& known);

/// What the configuration file of `config`, which has been parsed, has at its
/// top level that is no option, or in any group a value of another type than
/// the option's: `FILE: batch: expected a whole number, found "many"`. Empty if
/// there is nothing. CAF leaves out both without a word, of the latter 1.x only
/// what it cannot convert.
std::string config_file_problem(const caf::actor_system_config& config,
                                const caf::config_option_set& known);

/// The configuration file that `parse` has read, or would have read if it had
/// been there.
inline std::string config_file(const caf::actor_system_config& config) {
#if SYNCNORM_CAF_LEGACY
  return config.config_file_path;
#else
  return caf::get_or(config, "config-file", std::string{});
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

/// Whether an option takes a value. 1.x converts it where it can; of types that
/// are none of these that is not known, and taken for granted.
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
