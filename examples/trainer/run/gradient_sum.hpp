#pragma once

#include "trainer/run/messages.hpp"

#include "syncnorm/sync_options.hpp"

#include <span>
#include <vector>

namespace syncnorm::train {

/// The callback of the master of the gradients: adds up what the replicas sent,
/// in the order of their identifiers, in float64, and answers all of them the
/// same. Every replica has divided by the samples of the whole batch, so the
/// sum is the mean over the samples however they were spread.
/// @throws syncnorm::error `shape_mismatch` if two gradients differ in length
///         or type.
[[nodiscard]] std::vector<identified<gradient_sum>>
add_gradients(std::span<identified<gradient_part>> messages);

} // namespace syncnorm::train
