#pragma once

#include "trainer/run/messages.hpp"

#include "syncnorm/sync_callback.hpp"

#include <span>

namespace syncnorm::train {

/// Merges `messages`, in the order of their identifiers, into one part: sums in
/// float64 along the tree by which all masters merge, so that relays change no
/// bit. Every replica has divided by the samples of the whole batch, so the sum
/// is the mean over the samples, however they were spread.
/// @throws syncnorm::error `shape_mismatch` if two gradients differ in length
///         or type, or one has both types.
[[nodiscard]] gradient_part
merge_gradients(std::span<identified<gradient_part>> messages);

/// What the master of the gradients answers to all.
[[nodiscard]] gradient_sum finish_gradients(const gradient_part& total);

} // namespace syncnorm::train
