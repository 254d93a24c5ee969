#pragma once

// A backward pass's round among the copies with graphs of their own.

#include "actors/nn/backward_part.hpp"
#include "actors/nn/participant.hpp"

#include <ATen/core/Tensor.h>

namespace syncnorm::nn::detail {

/// Adds the 2 x C sums of all copies by a round; without history. If the sums
/// are on a device, so is the result, and nothing waits for the device.
/// @param of names call, dtype and count.
[[nodiscard]] at::Tensor exchange_sums(participant& seat,
                                       const at::Tensor& sums,
                                       const backward_part& of);

/// The first half of `exchange_sums`, which waits for no other copy.
void begin_exchange(participant& seat, const at::Tensor& sums,
                    const backward_part& of);

/// The second half.
[[nodiscard]] at::Tensor end_exchange(participant& seat,
                                      const backward_part& of);

} // namespace syncnorm::nn::detail
