#pragma once

#include <string>
#include <string_view>

// What was read, as an error can show it.

namespace pipeline {

/// Two hexadecimal digits a byte, with blanks between them.
std::string to_hex(std::string_view bytes);

/// The text in one line, of bounded length, that does nothing to a terminal: a
/// byte that is no printable character of ASCII is \x and its two hexadecimal
/// digits, and of a long text the beginning stays, with three dots.
std::string printable(std::string_view text);

} // namespace pipeline
