#pragma once

#include "syncnorm/compat.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace syncnorm::train {

/// What an error says to the user, in one line: the text that its sender gave
/// it, or what CAF prints.
[[nodiscard]] std::string text_of(const caf::error& reason);

/// Whether somebody else is at fault: the error is that of a failed round, and
/// not of the replica that it comes from.
[[nodiscard]] bool is_consequence(const caf::error& reason);

/// The first line of `text`: libtorch's texts continue with a stack trace.
[[nodiscard]] std::string first_line(const std::string& text);

/// A text from another process in printable form: up to `longest` characters.
[[nodiscard]] std::string printable(std::string_view text, std::size_t longest);

} // namespace syncnorm::train
