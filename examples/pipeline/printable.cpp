#include "printable.hpp"

#include <cstddef>

namespace pipeline {

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result;
  for (unsigned char byte : bytes) {
    if (!result.empty())
      result += ' ';
    result += digits[byte / 16];
    result += digits[byte % 16];
  }
  return result;
}

std::string printable(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string result;
  for (auto byte : text.substr(0, longest)) {
    if (byte >= ' ' && byte <= '~')
      result += byte;
    else
      result += "\\x" + to_hex({&byte, 1});
  }
  return text.size() > longest ? result + "..." : result;
}

} // namespace pipeline
