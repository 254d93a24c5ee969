#pragma once

#include <string>
#include <string_view>

// Input, as an error can show it.

namespace pipeline {

/// Two hexadecimal digits per byte, separated by blanks.
std::string to_hex(std::string_view bytes);

/// The text in one line, of bounded length and harmless to a terminal: a byte
/// that is not a printable ASCII character becomes \x and its two hexadecimal
/// digits. Of a long text, only the beginning stays, with three dots.
std::string printable(std::string_view text);

} // namespace pipeline
