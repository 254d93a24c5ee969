#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <caf/io/all.hpp>

#include <cstddef>
#include <string>
#include <utility>

#if !SYNCNORM_CAF_LEGACY
#include <caf/init_global_meta_objects.hpp>
#endif

namespace syncnorm::detail {

/// Registers the message types of `IdBlocks`; call from the constructor of the
/// configuration class. On 1.x, `init_types` has done this before.
template <class... IdBlocks>
void add_types([[maybe_unused]] caf::actor_system_config& config) {
#if SYNCNORM_CAF_LEGACY
  (config.add_message_types<IdBlocks>(), ...);
#endif
}

/// Adds an option that keeps the value from a configuration file, whatever its
/// type: the reader must refuse a wrong one. CAF silently skips a value of
/// another type than the option's; on 1.x, one that it cannot convert.
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

/// Adds options of one group to a set, as CAF's `config_option_adder` does, but
/// none that an environment variable sets: by default CAF 1.x takes an option
/// `batch` of group `global` from `BATCH`, overriding the configuration file.
class option_group {
public:
  option_group(caf::config_option_set& options, std::string group)
      : options_{options},
        group_{std::move(group)} {}

  /// @param name    of the option, with a comma and a letter for a short one.
  /// @param storage gets the option's value, and holds its default.
  template <class T>
  option_group& add(T& storage, std::string name,
                    const std::string& description) {
#if !SYNCNORM_CAF_LEGACY
    name += name.find(',') == std::string::npos ? ",," : ",";
#endif
    options_.add<T>(storage, group_, name, description);
    return *this;
  }

private:
  caf::config_option_set& options_;
  std::string group_;
};

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

/// Sets an option of CAF's own.
template <class T>
void set_caf(caf::actor_system_config& config, const std::string& name,
             T value) {
#if SYNCNORM_CAF_LEGACY
  config.set(name, std::move(value));
#else
  config.set("caf." + name, std::move(value));
#endif
}

/// Makes nodes send each other a sign of life every `interval`, and consider
/// one lost that has sent nothing for `timeout`. Neither is on by default on
/// 0.17.
inline void set_heartbeats(caf::actor_system_config& config,
                           caf::timespan interval, caf::timespan timeout) {
  set_caf(config, "middleman.heartbeat-interval", interval);
  set_caf(config, "middleman.connection-timeout", timeout);
}

/// Makes the thread that receives messages from other nodes read them, too. By
/// default CAF hands them to its workers: another thread has to wake up.
inline void read_where_received(caf::actor_system_config& config) {
  set_caf(config, "middleman.workers", std::size_t{0});
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

/// Makes the workers of CAF's scheduler sleep until there is work. By default
/// an idle one looks for work every 50 microseconds: four of them took a sixth
/// of a trainer's time, and find work later than one that is woken.
inline void sleep_when_idle(caf::actor_system_config& config) {
  set_caf(config, "work-stealing.aggressive-poll-attempts", 0);
  set_caf(config, "work-stealing.moderate-poll-attempts", 0);
}

/// Makes the workers of CAF's scheduler look for work `attempts` times without
/// a pause before they slow down. For actors on several cores that calculate
/// for some microseconds between messages: a worker that gets work tells no
/// other, which finds it only by looking.
inline void poll_when_idle(caf::actor_system_config& config,
                           std::size_t attempts) {
  set_caf(config, "work-stealing.aggressive-poll-attempts", attempts);
}

} // namespace syncnorm::detail
