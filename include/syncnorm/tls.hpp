#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <string>

namespace syncnorm {

/// How a node proves who it is, and whom it trusts: files in PEM format.
struct tls_options {
  /// This node's certificate, followed by those between it and the CA's.
  std::string certificate;
  /// Its private key, without a passphrase.
  std::string key;
  /// The certificates of the CAs that vouch for the nodes, this one included.
  std::string ca;
};

/// Makes a system of this configuration publish and connect by TLS only, with
/// CAF's openssl module. Both sides show a certificate, and refuse one that is
/// missing, expired, signed by no CA of `options.ca`, or not issued for its
/// role (extended key usage: server, client). Names are not compared: any
/// holder of a certificate of the CA may take part. Call it after
/// `use_network`. The files must stay as they are while the system lives: CAF
/// reads them for each connection.
/// @throws error `invalid_argument` for a file that cannot be read, a pipe or a
///         device, a file of the wrong kind, a key that is not the
///         certificate's, or a certificate of this node that has expired or was
///         signed by no CA of `options.ca`.
void use_tls(caf::actor_system_config& config, const tls_options& options);

} // namespace syncnorm
