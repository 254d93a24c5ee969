#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <chrono>
#include <span>
#include <string>

#if !SYNCNORM_CAF_LEGACY
#include <caf/telemetry/metric_registry.hpp>
#endif

namespace syncnorm::detail {

/// What one master counts in the metric registry of CAF 1.x. Does nothing on
/// 0.17, which has no registry.
class round_instruments {
#if SYNCNORM_CAF_LEGACY
public:
  round_instruments(caf::actor_system&, const std::string&,
                    std::span<const double>) {}

  void completed(caf::timespan) {}

  void failed(const std::string&) {}
#else
public:
  round_instruments(caf::actor_system& system, const std::string& layer,
                    std::span<const double> bounds)
      : registry_{&system.metrics()},
        layer_{layer},
        rounds_{registry_
                    ->counter_family("syncnorm", "rounds", {"layer"},
                                     "Completed rounds", "1", true)
                    ->get_or_add({{"layer", layer_}})},
        waits_{registry_
                   ->histogram_family<double>(
                       "syncnorm", "wait-time", {"layer"},
                       caf::span<const double>{bounds.data(), bounds.size()},
                       "Time from a round's first message until all have "
                       "come, or it goes on without the others",
                       "seconds")
                   ->get_or_add({{"layer", layer_}})} {}

  void completed(caf::timespan waited) {
    rounds_->inc();
    waits_->observe(std::chrono::duration<double>(waited).count());
  }

  void failed(const std::string& cause) {
    registry_
        ->counter_family("syncnorm", "failures", {"layer", "cause"},
                         "Failed rounds and expelled slaves", "1", true)
        ->get_or_add({{"layer", layer_}, {"cause", cause}})
        ->inc();
  }

private:
  caf::telemetry::metric_registry* registry_;
  std::string layer_;
  caf::telemetry::int_counter* rounds_;
  caf::telemetry::dbl_histogram* waits_;
#endif
};

} // namespace syncnorm::detail
