#pragma once

#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/sync_options.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace syncnorm {

/// How much is logged under CAF's component `syncnorm`: events of this severity
/// or worse, if CAF's own logger accepts them.
enum class log_level : std::uint8_t {
  /// Nothing.
  quiet = 0,
  /// Reserved: what ends a round is a warning, since the application may go on.
  error = 1,
  /// Rounds that failed, with their cause, and slaves that were expelled.
  warning = 2,
  /// A new generation, a master that ended.
  info = 3,
  /// Each registration.
  debug = 4,
};

/// Returns the option's value for that: `"quiet"`, ..., `"debug"`.
[[nodiscard]] std::string to_string(log_level level);

/// What masters use where their own options leave a value open: the group
/// `syncnorm` of an application's configuration file and command line.
struct sync_defaults {
  /// Option `syncnorm.deadline`: a duration longer than zero, and of a year at
  /// most, such as `30s`.
  caf::timespan deadline = std::chrono::seconds{60};
  /// Option `syncnorm.failure-policy`: `fail-round` or
  /// `continue-with-survivors`. Layers fail the round whatever this option
  /// says: a copy must see the same participants forward and backward.
  failure_policy policy = failure_policy::fail_round;
  /// Option `syncnorm.fan-in`: an integer of 2 or more.
  std::int64_t fan_in = 16;
  /// Option `syncnorm.max-message`: the most bytes of a message from another
  /// node, 65,536 or more. A node that announces a longer one is disconnected,
  /// and counts as lost. The limit applies to what `publish_master` opens and
  /// `remote_master` connects to.
  std::int64_t max_message = std::int64_t{1} << 30U;
  /// Option `syncnorm.log-level`: `quiet`, `error`, `warning`, `info` or
  /// `debug`.
  log_level log = log_level::info;
};

/// Adds the group `syncnorm` to an application's configuration, so that the
/// command line can set it, as the file can anyway, and `--long-help` lists it.
/// Call it in the constructor:
///
///     struct config : caf::actor_system_config {
///       config() {
///         syncnorm::add_config_options(custom_options_);
///       }
///     };
void add_config_options(caf::config_option_set& options);

/// Returns the configured values, and the defaults above for the rest. Masters
/// call it when they are spawned; an application that wants bad values refused
/// before its first master calls it at its start.
/// @throws error `invalid_argument` for a value of another type or outside of
///         what the option takes, and for an option that the group does not
///         have; the text names the option, what was expected and what was
///         found.
[[nodiscard]] sync_defaults
read_defaults(const caf::actor_system_config& config);

/// Returns `options` with what they leave open taken from the configuration.
/// @throws error `invalid_argument` as `sync_options::validate` and
///         `read_defaults`.
[[nodiscard]] sync_options resolve(sync_options options,
                                   const caf::actor_system_config& config);

} // namespace syncnorm
