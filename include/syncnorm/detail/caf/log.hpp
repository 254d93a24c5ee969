#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <caf/logger.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace syncnorm::detail {

/// CAF's number of a level, from `quiet` = 0 over `error`, `warning`, `info` to
/// `debug` = 4.
template <class Level>
constexpr unsigned caf_log_level(Level level) {
  constexpr unsigned levels[] = {CAF_LOG_LEVEL_QUIET, CAF_LOG_LEVEL_ERROR,
                                 CAF_LOG_LEVEL_WARNING, CAF_LOG_LEVEL_INFO,
                                 CAF_LOG_LEVEL_DEBUG};
  return levels[static_cast<std::size_t>(level)];
}

#if SYNCNORM_CAF_LEGACY
inline constexpr auto log_component = caf::atom("syncnorm");
#else
inline constexpr std::string_view log_component = "syncnorm";
#endif

/// Returns whether CAF's logger takes messages of that level from us.
template <class Level>
bool accepts_log(caf::actor_system& system, Level level) {
  return system.logger().accepts(caf_log_level(level), log_component);
}

/// Hands a message to CAF's logger, also where the program that CAF was built
/// for has its macros off.
template <class Level>
void write_log(caf::actor_system& system, Level level, std::string text) {
#if SYNCNORM_CAF_LEGACY
  auto& logger = system.logger();
  logger.log(caf::logger::event{
      caf_log_level(level), __LINE__, log_component, "syncnorm::master",
      "master", "syncnorm", std::move(text), std::this_thread::get_id(),
      logger.thread_local_aid(), caf::make_timestamp()});
#else
  // Also on a thread that is not CAF's: see `send_and_lend`.
  // It may be the last one that a system has left, which the thread keeps.
  caf::intrusive_ptr<caf::logger> before{caf::logger::current_logger()};
  caf::logger::current_logger(&system);
  caf::logger::log(caf_log_level(level), log_component, "{}", text);
  caf::logger::current_logger(before.get());
#endif
}

} // namespace syncnorm::detail
