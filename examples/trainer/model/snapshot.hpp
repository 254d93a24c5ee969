#pragma once

#include "trainer/model/network.hpp"
#include "trainer/run/model_state.hpp"

#include <torch/types.h>

namespace syncnorm::train {

/// All that steps have changed in `model`, on any device, and in the
/// optimizer's velocity, a row on the host in the type of the weights.
[[nodiscard]] model_state snapshot_of(const network& model,
                                      const torch::Tensor& velocity);

/// Gives `model` and `velocity` the values of `state`, bit for bit.
/// @throws failure with what was expected and found if `state` is of another
///         model, in another type or of other sizes; both are as they were.
void restore(const model_state& state, network& model,
             const torch::Tensor& velocity);

} // namespace syncnorm::train
