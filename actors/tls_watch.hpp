#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <cstdint>
#include <string>

// CAF keeps to itself why TLS refused a connection. OpenSSL says it to whoever
// asks, on the thread that the handshake runs on. What this file keeps belongs
// to the process, as OpenSSL's own settings do.

namespace syncnorm::detail {

/// Listens from now on to what OpenSSL says of connections that show that
/// certificate, of type `X509`. One that is silent for ten seconds in its
/// handshake is ended: CAF 0.17 tries it again and again, and would wait for it
/// at its end.
void watch_tls(const void* certificate);

/// Forgets what `tls_failure` knows of that port, on any host.
void forget_tls_failure(std::uint16_t port);

/// Returns why TLS failed with the node at that port of that host; empty: it
/// did not, as far as is known. Looks up the host's name if it failed with some
/// host at that port.
[[nodiscard]] std::string tls_failure(const std::string& host,
                                      std::uint16_t port);

} // namespace syncnorm::detail
