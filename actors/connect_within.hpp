#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <caf/io/network/native_socket.hpp>
#include <netdb.h>

#include <cstdint>
#include <string>

namespace syncnorm::detail {

/// Connects to that port of a host: tries its addresses one after the other,
/// each for its share of the time. A connection of CAF's own waits as long as
/// TCP tries, two minutes, and so does the end of its actor system. How long a
/// name lookup takes is up to the machine's resolver.
/// @returns a socket that does not block; or `connection_timeout` if nobody
///          answered, or `cannot_connect_to_node` and why.
[[nodiscard]] caf::expected<caf::io::network::native_socket>
connect_within(caf::timespan patience, const std::string& host,
               std::uint16_t port);

/// The same for the addresses of a host, one or more. Of several errors,
/// returns the one that says most: a refusal rather than silence.
[[nodiscard]] caf::expected<caf::io::network::native_socket>
connect_to_any(caf::timespan patience, const addrinfo& addresses);

} // namespace syncnorm::detail
