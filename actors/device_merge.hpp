#pragma once

#include "syncnorm/batch_norm_messages.hpp"
#include "syncnorm/device_array.hpp"
#include "syncnorm/sync_callback.hpp"

#include <cstdint>
#include <span>

namespace syncnorm::detail {

/// Merges the values of messages along the tree over the identifiers, enqueued
/// behind their ready-events. The messages are known to agree, and their values
/// all lie on devices; values on devices other than that of `on` are copied to
/// it first. The results of batches that share the messages lie one behind the
/// other.
/// @param on if none: the stream that wrote the first message's values.
[[nodiscard]] device_array
merge_on_device(std::span<const identified<batch_norm_message>> messages,
                const device_stream& on);

/// The reply to the merged messages, whose values lie on a device. Its running
/// statistics are a separate array: the owner's stay as they are.
/// @param owner whose update it is.
/// @param on as for `merge_on_device`.
/// @throws error `malformed_message` for counters that cannot count the
/// batches.
[[nodiscard]] batch_norm_reply finish_on_device(std::int64_t owner,
                                                const batch_norm_message& total,
                                                const device_stream& on);

} // namespace syncnorm::detail
