#include "tls_watch.hpp"

#include "door.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

namespace syncnorm::detail {

namespace {

// -- why ----------------------------------------------------------------------

/// A reason as a number, for a table of atomics.
struct failure_reason {
  enum kind_type : std::uint8_t {
    none = 0,
    /// This node does not accept the certificate: a code of X509_V_.
    certificate = 1,
    /// The other node said why it does not go on: a TLS alert.
    alert = 2,
    /// Anything else: a code of OpenSSL's error queue.
    protocol = 3,
    /// Nothing came.
    silence = 4,
  };
  kind_type kind = none;
  std::uint32_t code = 0;
};

/// OpenSSL 3.0 has no name for this alert.
constexpr std::uint32_t certificate_required = 116;

std::string alert_text(std::uint32_t code) {
  if (code == certificate_required)
    return "certificate required";
  // The alert is the low byte of what OpenSSL's callbacks get.
  return SSL_alert_desc_string_long(static_cast<int>(code));
}

std::string text_of(const failure_reason& x) {
  switch (x.kind) {
  case failure_reason::certificate:
    return X509_verify_cert_error_string(static_cast<long>(x.code));
  case failure_reason::alert:
    return fmt::format("the other side says: {}", alert_text(x.code));
  case failure_reason::protocol:
    if (const auto* text = ERR_reason_error_string(x.code))
      return text;
    return "connection lost";
  case failure_reason::silence:
    return "silent for 10 s in the handshake";
  default:
    return {};
  }
}

failure_reason own_reason(const SSL* ssl) {
  if (auto verdict = SSL_get_verify_result(ssl); verdict != X509_V_OK)
    return {failure_reason::certificate, static_cast<std::uint32_t>(verdict)};
  return {failure_reason::protocol,
          static_cast<std::uint32_t>(ERR_peek_last_error())};
}

/// Whether the sender of this alert does not accept a certificate.
bool is_of_trust(const failure_reason& x) {
  switch (x.code) {
  case certificate_required:
  case SSL_AD_HANDSHAKE_FAILURE:
  case SSL_AD_BAD_CERTIFICATE:
  case SSL_AD_UNSUPPORTED_CERTIFICATE:
  case SSL_AD_CERTIFICATE_REVOKED:
  case SSL_AD_CERTIFICATE_EXPIRED:
  case SSL_AD_CERTIFICATE_UNKNOWN:
  case SSL_AD_UNKNOWN_CA:
  case SSL_AD_ACCESS_DENIED:
  case SSL_AD_DECRYPT_ERROR:
    return x.kind == failure_reason::alert;
  default:
    return false;
  }
}

/// What OpenSSL's call of `on_info` says about a failure, if there is one.
failure_reason find_reason(const SSL* ssl, int where, int value) {
  auto bits = static_cast<unsigned>(where);
  if ((bits & SSL_CB_ALERT) != 0) {
    auto alert = static_cast<unsigned>(value);
    if (alert >> 8U != SSL3_AL_FATAL)
      return {};
    if ((bits & SSL_CB_READ) != 0)
      return {failure_reason::alert, alert & 0xFFU};
    return own_reason(ssl);
  }
  // OpenSSL empties its queue before each attempt at a handshake.
  if ((bits & SSL_CB_EXIT) != 0 && value <= 0 && ERR_peek_last_error() != 0)
    return own_reason(ssl);
  return {};
}

// -- who ----------------------------------------------------------------------

struct peer_address {
  std::string text = "somebody";
  std::uint16_t port = 0;
};

/// @param storage  an IPv4 or IPv6 address.
peer_address address_in(const sockaddr* storage) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (storage->sa_family == AF_INET) {
    const auto& v4 = *reinterpret_cast<const sockaddr_in*>(storage);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return {text.data(), ntohs(v4.sin_port)};
  }
  const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(storage);
  ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  return {text.data(), ntohs(v6.sin6_port)};
}

peer_address address_of(const SSL* ssl) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* plain = reinterpret_cast<sockaddr*>(&storage);
  if (::getpeername(SSL_get_fd(ssl), plain, &size) != 0)
    return {};
  return address_in(plain);
}

/// Tells the hosts at one port apart, mostly.
std::uint8_t mark_of(const peer_address& x) {
  return static_cast<std::uint8_t>(std::hash<std::string>{}(x.text));
}

/// Whether one of the addresses of `host` has that mark.
bool has_mark(const std::string& host, std::uint8_t mark) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &first) != 0)
    return false;
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> all{first, ::freeaddrinfo};
  for (const auto* x = first; x != nullptr; x = x->ai_next)
    if (mark_of(address_in(x->ai_addr)) == mark)
      return true;
  return false;
}

// -- whom to tell -------------------------------------------------------------

/// The last failure of connections from this process, by the other side's port,
/// with the mark of its address. Two ports that share a place, and two hosts at
/// one port, may hide each other's reason.
std::array<std::atomic<std::uint64_t>, 64> failures{};

std::atomic<std::uint64_t>& place_of(std::uint16_t port) {
  return failures[port % failures.size()];
}

void keep(const peer_address& peer, const failure_reason& reason) {
  place_of(peer.port).store(static_cast<std::uint64_t>(peer.port) << 48U
                            | std::uint64_t{mark_of(peer)} << 40U
                            | static_cast<std::uint64_t>(reason.kind) << 32U
                            | reason.code);
}

// -- which connections --------------------------------------------------------

/// A certificate of this process. Never deleted, because a connection may look
/// at it at any time.
struct own_certificate {
  X509* value;
  own_certificate* next;
};

std::atomic<own_certificate*> own_certificates{nullptr};

/// Whether CAF made that connection, and not another part of the program.
bool is_ours(const SSL* ssl) {
  const auto* shown = SSL_get_certificate(ssl);
  auto* x = own_certificates.load(std::memory_order_acquire);
  while (x != nullptr && (shown == nullptr || X509_cmp(x->value, shown) != 0))
    x = x->next;
  return x != nullptr;
}

using clock = std::chrono::steady_clock;

/// What is kept with a connection, from its first message on.
struct handshake {
  clock::time_point begin = clock::now();
  /// As of the first message: a connection that was reset has none.
  peer_address peer;
  /// OpenSSL itself forgets this when the connection fails.
  bool done = false;
  bool told = false;
};

void delete_handshake(void*, void* x, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<handshake*>(x);
}

handshake& handshake_of(const SSL* ssl) {
  static const int index =
      SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, delete_handshake);
  auto* x = static_cast<handshake*>(SSL_get_ex_data(ssl, index));
  if (x == nullptr) {
    x = new handshake{.peer = address_of(ssl)};
    SSL_set_ex_data(const_cast<SSL*>(ssl), index, x);
  }
  return *x;
}

/// Whether CAF leaves a handshake attempt, which it would retry, more than
/// `patience` after the handshake began.
bool is_late(int where, int value, const handshake& x) {
  constexpr auto patience = std::chrono::seconds{10};
  return (static_cast<unsigned>(where) & SSL_CB_EXIT) != 0 && value <= 0
         && clock::now() - x.begin > patience;
}

// -- what OpenSSL calls -------------------------------------------------------

void tell(const SSL* ssl, int where, int value) {
  auto& state = handshake_of(ssl);
  if ((static_cast<unsigned>(where) & SSL_CB_HANDSHAKE_DONE) != 0)
    state.done = true;
  auto reason = find_reason(ssl, where, value);
  // A peer that has shown a certificate is lost, not refused. A client may
  // learn only afterwards that the server refuses it; or that one of two
  // connections to a node was ended, which is no matter of trust.
  if (state.done && (SSL_is_server(ssl) != 0 || !is_of_trust(reason)))
    return;
  if (reason.kind == failure_reason::none && is_late(where, value, state))
    reason.kind = failure_reason::silence;
  if (reason.kind == failure_reason::none || state.told)
    return;
  state.told = true;
  if (reason.kind == failure_reason::silence)
    // CAF finds the end of the stream at its next attempt.
    ::shutdown(SSL_get_fd(ssl), SHUT_RDWR);
  if (const auto* here = at_door::here())
    here->tell(state.peer.text, text_of(reason));
  else if (SSL_is_server(ssl) == 0)
    keep(state.peer, reason);
}

/// OpenSSL keeps errors per thread. CAF, whose log is compiled out, leaves them
/// there and takes them for errors of the next connection that it looks at: a
/// stranger's failure would end a member's connection. This library's
/// connections clear them first (`tls_policy`); CAF's own, by which an
/// application may have published something, do not. Without these errors,
/// OpenSSL reports a failed handshake as a lost connection, which CAF ends as
/// well.
void on_info(const SSL* ssl, int where, int value) {
  if (!is_ours(ssl))
    return;
  tell(ssl, where, value);
  auto bits = static_cast<unsigned>(where);
  auto exits = (bits & SSL_CB_EXIT) != 0 && value <= 0;
  if (exits || (bits & SSL_CB_WRITE_ALERT) == SSL_CB_WRITE_ALERT)
    ERR_clear_error();
}

void on_new_context(void* context, void*, CRYPTO_EX_DATA*, int, long, void*) {
  SSL_CTX_set_info_callback(static_cast<SSL_CTX*>(context), on_info);
}

} // namespace

void watch_tls(const void* certificate) {
  auto* value = static_cast<X509*>(const_cast<void*>(certificate));
  X509_up_ref(value);
  auto* added = new own_certificate{
      value, own_certificates.load(std::memory_order_acquire)};
  while (!own_certificates.compare_exchange_weak(added->next, added,
                                                 std::memory_order_acq_rel)) {
  }
  static const int index = CRYPTO_get_ex_new_index(
      CRYPTO_EX_INDEX_SSL_CTX, 0, nullptr, on_new_context, nullptr, nullptr);
  (void) index;
}

void forget_tls_failure(std::uint16_t port) {
  place_of(port).store(0);
}

std::string tls_failure(const std::string& host, std::uint16_t port) {
  auto packed = place_of(port).load();
  if (packed >> 48U != port
      || !has_mark(host, static_cast<std::uint8_t>(packed >> 40U & 0xFFU)))
    return {};
  return text_of({static_cast<failure_reason::kind_type>(packed >> 32U & 0xFFU),
                  static_cast<std::uint32_t>(packed)});
}

} // namespace syncnorm::detail
