#pragma once

#include "syncnorm/compat.hpp"

#if SYNCNORM_CAF_LEGACY
#include <caf/scheduler/test_coordinator.hpp>
#else
#include <caf/detail/test_coordinator.hpp>
#endif

#include <algorithm>
#include <cstddef>

// Actors without threads: the test says which of them takes its next message,
// and its clock stands still until somebody waits for it. What happens depends
// only on the numbers that the test draws; a run that has failed fails again.

namespace syncnorm::test {

/// CAF's own scheduler and clock for tests.
#if SYNCNORM_CAF_LEGACY
using simulated_scheduler = caf::scheduler::test_coordinator;
#else
using simulated_scheduler = caf::detail::test_coordinator;
#endif

/// An actor system. It cannot end before all its actors have.
struct simulation {
  /// @param config its scheduler is replaced.
  explicit simulation(caf::actor_system_config& config)
      : system{without_threads(config)} {}

  caf::actor_system system;
  simulated_scheduler& scheduler =
      static_cast<simulated_scheduler&>(system.scheduler());

  /// How many actors have messages to take.
  [[nodiscard]] std::size_t ready() const {
    return scheduler.jobs.size();
  }

  /// The one at `position` among these takes a message.
  void run(std::size_t position) {
    auto begin = scheduler.jobs.begin();
    auto chosen = begin + static_cast<std::ptrdiff_t>(position);
    std::rotate(begin, chosen, chosen + 1);
    run_first();
  }

  /// All actors take all of their messages, in any order; so do their timers.
  void run_to_the_end() {
    do {
      while (ready() != 0)
        run(0);
    } while (ring());
  }

#if SYNCNORM_CAF_LEGACY
  /// Advances the clock until the next timer rings.
  /// @returns whether there was one.
  bool ring() {
    return scheduler.trigger_timeout();
  }

private:
  static caf::actor_system_config&
  without_threads(caf::actor_system_config& config) {
    return config.set("scheduler.policy", caf::atom("testing"));
  }

  void run_first() {
    scheduler.run_once();
  }
#else
  // CAF 1.x has the following as well, but not in its library.

  bool ring() {
    auto& clock = static_cast<caf::detail::test_actor_clock&>(system.clock());
    while (!clock.actions.empty()) {
      auto [due, action] = *clock.actions.begin();
      clock.actions.erase(clock.actions.begin());
      clock.current_time = std::max(clock.current_time, due);
      if (action.disposed())
        continue;
      action.run();
      return true;
    }
    return false;
  }

private:
  static caf::actor_system_config&
  without_threads(caf::actor_system_config& config) {
    return config.set("caf.scheduler.policy", "testing");
  }

  void run_first() {
    auto* job = scheduler.jobs.front();
    scheduler.jobs.pop_front();
    if (job->resume(&scheduler, 1) == caf::resumable::resume_later)
      scheduler.jobs.push_front(job);
    else
      caf::intrusive_ptr_release(job);
  }
#endif
};

} // namespace syncnorm::test
