#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/error.hpp>
#include <caf/expected.hpp>

#include <sstream>
#include <string>

// What a configuration file has wrong that CAF does not say, or not in words.

namespace syncnorm::detail {

/// The options that stand in `text`, by CAF.
[[nodiscard]] inline auto parse_config_text(const std::string& text) {
  std::istringstream in{text};
  return caf::actor_system_config::parse_config(in);
}

/// Where `parse_config_text` could not go on in `text`, and what a file may
/// hold: `"line 3, column 6: expected NAME = VALUE, ..."`.
[[nodiscard]] std::string syntax_problem(const std::string& text,
                                         const caf::error& problem);

/// What `text` lacks if it ends amid a group or a list, which CAF takes for
/// their ends: `"}"` or `"]"`; or empty.
[[nodiscard]] std::string missing_end(const std::string& text);

/// Of text that can be parsed, what CAF 0.17 leaves out without a word: what
/// stands in a group `global { }`, and whatever has a name that was there
/// before. Empty if it takes everything, as CAF 1.x does.
[[nodiscard]] std::string lost_part(const std::string& text);

} // namespace syncnorm::detail
