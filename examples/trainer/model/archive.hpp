#pragma once

#include "trainer/input/dataset.hpp"
#include "trainer/plan/settings.hpp"
#include "trainer/run/model_state.hpp"

#include <string>

// The content of a checkpoint file: what `torch::save(model, file)` writes,
// with the optimizer's velocity and the run's state beside the model, in an
// entry "syncnorm" that `torch::load` skips. So plain libtorch and Python's
// `torch.jit.load` can read the model. The comment of the zip archive holds a
// CRC-32C of all that comes before it.
//
// Only the process that has the file reads and writes it; a `model_state`
// travels between processes. libtorch, which this header hides, does this with
// a model of its own on the CPU, made for `options` and images of `shape`.

namespace syncnorm::train {

/// A checkpoint's content.
/// @param run the run's state; see `to_text`.
/// @throws failure if `state` is of another model.
[[nodiscard]] std::string pack(const model_state& state, const std::string& run,
                               const settings& options, image_shape shape);

/// The model's state that `pack` put in.
/// @throws failure that names `file` if it is not a checkpoint, or if the model
///         or the velocity has other names, types or shapes.
[[nodiscard]] model_state unpack(const std::string& content,
                                 const std::string& file,
                                 const settings& options, image_shape shape);

/// The run's state that `pack` put in.
/// @throws failure that names `file` if it is not a checkpoint.
[[nodiscard]] std::string unpack_run(const std::string& content,
                                     const std::string& file);

} // namespace syncnorm::train
