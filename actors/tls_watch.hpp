#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <cstdint>
#include <string>

// CAF does not say why TLS refused a connection. OpenSSL tells its callback, on
// the thread that runs the handshake. What this file keeps belongs to the
// process, as OpenSSL's own settings do.

namespace syncnorm::detail {

/// From now on, listens to what OpenSSL says about connections that show that
/// certificate, of type `X509`. A connection that is silent for ten seconds in
/// its handshake is ended: CAF 0.17 retries it again and again, and would wait
/// for it when CAF itself ends.
void watch_tls(const void* certificate);

/// Forgets what `tls_failure` knows about that port, on any host.
void forget_tls_failure(std::uint16_t port);

/// Returns why TLS failed with the node at that port of that host; empty if it
/// did not, as far as is known. Looks up the host's name if TLS failed with
/// some host at that port.
[[nodiscard]] std::string tls_failure(const std::string& host,
                                      std::uint16_t port);

} // namespace syncnorm::detail
