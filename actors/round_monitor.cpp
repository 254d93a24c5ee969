#include "syncnorm/detail/round_monitor.hpp"

#include "syncnorm/caf_error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace syncnorm::detail {

namespace {

/// The highest level that is logged: the configured one, as far as CAF's own
/// logger accepts it.
log_level most_logged(caf::actor_system& system) {
  auto level = read_defaults(system.config()).log;
  while (level != log_level::quiet && !accepts_log(system, level))
    level = static_cast<log_level>(static_cast<int>(level) - 1);
  return level;
}

} // namespace

round_monitor::round_monitor(caf::actor_system& system,
                             const std::string& layer)
    : system_{&system},
      level_{most_logged(system)},
      instruments_{system, layer, sync_metrics::wait_bounds} {
  metrics_.layer = layer;
}

void round_monitor::failed(const caf::error& reason) {
  count(reason);
  if (logs(log_level::warning))
    write_log(*system_, log_level::warning, describe(reason));
}

void round_monitor::went_on(const caf::error& reason) {
  count(reason);
  if (logs(log_level::warning))
    write_log(*system_, log_level::warning,
              describe(reason) + "; the others go on");
}

void round_monitor::count(const caf::error& reason) {
  auto cause = code_of(reason).value_or(errc::none);
  auto& failures = metrics_.failures;
  auto i = std::ranges::find(failures, cause, &failure_count::cause);
  if (i == failures.end())
    i = failures.insert(i, failure_count{cause, 0});
  ++i->count;
  instruments_.failed(to_string(cause));
}

void round_monitor::registered(const std::string& where,
                               std::int64_t identifier,
                               std::uint64_t generation, std::size_t slaves) {
  if (logs(log_level::debug))
    write_log(*system_, log_level::debug,
              fmt::format("{}: replica {} has registered, generation {}, {} in "
                          "all",
                          where, identifier, generation, slaves));
}

void round_monitor::began(std::uint64_t generation) {
  if (logs(log_level::info))
    write_log(*system_, log_level::info,
              fmt::format("layer {}: generation {} begins", metrics_.layer,
                          generation));
}

void round_monitor::ended(const std::string& where) {
  if (logs(log_level::info))
    write_log(*system_, log_level::info,
              fmt::format("{}: the master is down", where));
}

} // namespace syncnorm::detail
