#pragma once

#include "trainer/model/network.hpp"

#include <torch/types.h>

#include <string>

namespace syncnorm::train {

/// A checkpoint's content: what `torch::save(model, file)` writes, with the
/// optimizer's velocity and the run's `state` beside the model, in an entry
/// "syncnorm" that `torch::load` passes over. So plain libtorch and Python's
/// `torch.jit.load` read the model. The comment of the zip archive holds a
/// CRC-32C of all that comes before it.
[[nodiscard]] std::string pack(const network& model,
                               const torch::Tensor& velocity,
                               const std::string& state);

/// Takes over what `pack` put in.
/// @throws failure that names `file` if it is not a checkpoint, or if the model
///         or the velocity has other shapes; both are as they were.
void unpack(const std::string& content, const std::string& file, network& model,
            torch::Tensor& velocity);

} // namespace syncnorm::train
