#pragma once

#include "syncnorm/caf_error.hpp"
#include "syncnorm/detail/caf_compat.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace syncnorm {

/// How often a code was the cause of a failure.
struct failure_count {
  /// Why.
  errc cause = errc::none;
  /// How often.
  std::uint64_t count = 0;

  /// Equal in all fields.
  friend bool operator==(const failure_count&, const failure_count&) = default;
};

/// For CAF's serializers.
template <class Inspector>
auto inspect(Inspector& f, failure_count& x) {
  return detail::inspect_object(f, x, "syncnorm::failure_count",
                                detail::field("cause", x.cause),
                                detail::field("count", x.count));
}

/// What a master has counted since it was spawned, over all generations. With
/// CAF 1.x, the same numbers are in the metric registry of the actor system,
/// labelled with the layer: the counters `syncnorm.rounds` and
/// `syncnorm.failures` (labelled with the cause as well) and the histogram
/// `syncnorm.wait-time`.
struct sync_metrics {
  /// The upper bounds of the histogram's buckets, in seconds. There is one more
  /// bucket, for what is above all of them.
  static constexpr std::array<double, 13> wait_bounds{
      1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1, 10, 60};

  /// The master's layer.
  std::string layer;
  /// How many take part now: the owner, and each slave and each relay as one.
  /// This is the number of messages per round. After a failed round, only the
  /// owner, until the first slave or relay registers again.
  std::uint64_t participants = 0;
  /// Rounds that were completed.
  std::uint64_t rounds = 0;
  /// For each cause that has occurred, how many
  ///
  /// - rounds failed,
  /// - slaves were expelled from a round that went on,
  /// - rounds went on at their deadline without some that had not registered.
  ///
  /// While no message of a round has arrived, a new generation and the end of
  /// the master are no failures. Nor is a participant that lets go of its pipe
  /// or exits in good order at such a time, until another participant comes to
  /// the round from which it is missing; with survivors, who do not miss it, it
  /// is neither counted nor logged. How a participant behind a relay has ended
  /// is not known: with `fail_round` it counts as good order, with survivors as
  /// a failure.
  std::vector<failure_count> failures;
  /// Of the completed rounds: how many took how long from their first message
  /// to their last, or until they went on without those that had not come; this
  /// is how long the first participant waited. One number for each of
  /// `wait_bounds`, and one for what is above.
  std::vector<std::uint64_t> waits =
      std::vector<std::uint64_t>(wait_bounds.size() + 1);
  /// The sum of these times.
  caf::timespan waited{0};

  /// How often `cause` has occurred.
  [[nodiscard]] std::uint64_t failed(errc cause) const noexcept;

  /// Equal in all fields.
  friend bool operator==(const sync_metrics&, const sync_metrics&) = default;
};

/// For CAF's serializers.
template <class Inspector>
auto inspect(Inspector& f, sync_metrics& x) {
  return detail::inspect_object(
      f, x, "syncnorm::sync_metrics", detail::field("layer", x.layer),
      detail::field("participants", x.participants),
      detail::field("rounds", x.rounds), detail::field("failures", x.failures),
      detail::field("waits", x.waits), detail::field("waited", x.waited));
}

} // namespace syncnorm
