#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/error.hpp>
#include <caf/expected.hpp>

#include <sstream>
#include <string>

// Problems of a configuration file that CAF does not report, or not in words.

namespace syncnorm::detail {

/// The options in `text`, parsed by CAF.
[[nodiscard]] inline auto parse_config_text(const std::string& text) {
  std::istringstream in{text};
  return caf::actor_system_config::parse_config(in);
}

/// Where `parse_config_text` could not go on in `text`, and what a file may
/// hold: `"line 3, column 6: expected NAME = VALUE, ..."`.
[[nodiscard]] std::string syntax_problem(const std::string& text,
                                         const caf::error& problem);

/// What `text` lacks if it ends inside a group or a list, `"}"` or `"]"`; else
/// empty. CAF takes the end of the text for theirs.
[[nodiscard]] std::string missing_end(const std::string& text);

/// What CAF 0.17 silently leaves out of text that can be parsed: the content of
/// a group `global { }`, and anything whose name came before. Empty if CAF
/// takes everything, as CAF 1.x does.
[[nodiscard]] std::string lost_part(const std::string& text);

} // namespace syncnorm::detail
