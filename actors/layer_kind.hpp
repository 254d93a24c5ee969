#pragma once

#include "syncnorm/batch_norm_options.hpp"

#include <string>

namespace syncnorm::detail {

/// The name of a layer's kind: the options in which its copies must agree;
/// those other than the default by name. `"BatchNorm(64, float32, eps=0.001)"`.
[[nodiscard]] std::string kind_of(const batch_norm_options& options);

} // namespace syncnorm::detail
