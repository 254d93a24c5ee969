#pragma once

#include <string>
#include <string_view>

namespace syncnorm::detail {

/// An error's text, behind `layer` if it names no layer: a master that has not
/// answered has not said which layer it serves.
[[nodiscard]] inline std::string with_layer(const std::string& layer,
                                            std::string_view text) {
  if (text.starts_with("layer "))
    return std::string{text};
  return "layer " + layer + ": " + std::string{text};
}

} // namespace syncnorm::detail
