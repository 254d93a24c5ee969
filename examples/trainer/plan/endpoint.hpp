#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace syncnorm::train {

/// Where a process serves a run.
struct endpoint {
  std::string host;
  std::uint16_t port = 0;
};

/// Whether `text` may be a host's name, or an address without brackets.
[[nodiscard]] bool is_host(std::string_view text);

/// Reads `HOST:PORT`; an IPv6 address stands in brackets: `[::1]:4242`.
/// @param option names it in errors; port 0 is not for `join`.
/// @throws failure that says what is wrong.
[[nodiscard]] endpoint parse_endpoint(std::string_view option,
                                      std::string_view text);

/// Returns `"HOST:PORT"`.
[[nodiscard]] std::string to_string(const endpoint& x);

} // namespace syncnorm::train
