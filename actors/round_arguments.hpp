#pragma once

#include "syncnorm/batch_norm_messages.hpp"
#include "syncnorm/sync_callback.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

// What the messages of a batch-norm round must be like, and how to read one
// that several batches share.

namespace syncnorm::detail {

using round_message = identified<batch_norm_message>;

// -- batches that share a message ---------------------------------------------

[[nodiscard]] inline std::size_t batches_of(const batch_norm_message& x) {
  return x.later_counts.size() + 1;
}

[[nodiscard]] inline std::int64_t& count_of(batch_norm_message& x,
                                            std::size_t batch) {
  return batch == 0 ? x.count : x.later_counts[batch - 1];
}

[[nodiscard]] inline std::int64_t count_of(const batch_norm_message& x,
                                           std::size_t batch) {
  return batch == 0 ? x.count : x.later_counts[batch - 1];
}

/// Mean and M2 of that batch; null if the message has no values.
[[nodiscard]] inline const double* values_of(const batch_norm_message& x,
                                             std::size_t batch) {
  const auto* all = x.values.data();
  return all == nullptr ? nullptr : all + 2 * std::size_t(x.channels) * batch;
}

/// Elements per channel of that batch over all messages.
/// @throws error `malformed_message` if they are too many to count, naming no
///         replica: a message may be that of several, merged by a relay.
[[nodiscard]] std::int64_t total_count(std::span<const round_message> messages,
                                       std::size_t batch);

// -- arguments ----------------------------------------------------------------

// All of these throw `error`, naming the replica.

/// The message's fields are valid, and its values fit them.
void require_known(const round_message& x);

/// `x` belongs to the same round as the owner's message.
void require_agreement(const round_message& owner, const round_message& x);

/// `total` is what all messages were merged into, with the owner's update.
void require_update(std::int64_t owner, const batch_norm_message& total);

/// `batch` elements per channel are to be merged into what `update` has seen.
void require_counters(std::int64_t owner, const statistics_update& update,
                      std::int64_t batch);

/// Why another batch, of that many elements per channel, cannot be counted;
/// empty if it can.
[[nodiscard]] std::string counter_problem(const statistics_update& seen,
                                          std::int64_t batch);

} // namespace syncnorm::detail
