#include "syncnorm/tls.hpp"

#include "tls_watch.hpp"

#include "syncnorm/error.hpp"

#include <caf/openssl/manager.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>

namespace syncnorm {

namespace {

[[noreturn]] void fail(const std::string& file, const std::string& expected,
                       const std::string& found) {
  throw error{errc::invalid_argument,
              fmt::format("use_tls: {}: expected {}, found {}",
                          file.empty() ? "no file" : file, expected, found)};
}

/// Why OpenSSL's last call failed: the last of its errors that says more than
/// that something in a file was wrong.
std::string reason() {
  std::string result = "something else";
  while (auto code = ERR_get_error()) {
    auto number = ERR_GET_REASON(code);
    const auto* text = ERR_reason_error_string(code);
    if (text != nullptr && number != ERR_R_PEM_LIB
        && number != ERR_R_UNSUPPORTED)
      result = text;
  }
  return result;
}

/// CAF reads the file again for each connection, so it must be one that can be
/// read again: a pipe is empty then, and CAF would wait for it if nobody writes
/// to it.
void require_file(const std::string& file, const char* expected) {
  auto number = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0)
    fail(file, expected, std::generic_category().message(errno));
  struct stat found {};
  auto known = ::fstat(number, &found) == 0;
  ::close(number);
  if (known && S_ISDIR(found.st_mode))
    fail(file, expected, std::generic_category().message(EISDIR));
  if (known && !S_ISREG(found.st_mode))
    fail(file, expected, "a pipe or a device");
}

using context_ptr = std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)>;

/// Called if a key has a passphrase: there is nobody to ask.
int no_passphrase(char*, int, int, void*) {
  return -1;
}

/// Does what CAF does for each connection; CAF would throw on its own thread.
context_ptr check_files(const tls_options& options) {
  constexpr auto certificate = "a usable certificate in PEM format";
  constexpr auto key = "the certificate's private key in PEM format, without a "
                       "passphrase";
  constexpr auto ca = "certificates of CAs in PEM format";
  require_file(options.certificate, certificate);
  require_file(options.key, key);
  require_file(options.ca, ca);
  ERR_clear_error();
  context_ptr context{SSL_CTX_new(TLS_method()), SSL_CTX_free};
  if (!context)
    throw error{errc::invalid_argument, "use_tls: OpenSSL: " + reason()};
  SSL_CTX_set_default_passwd_cb(context.get(), no_passphrase);
  if (SSL_CTX_use_certificate_chain_file(context.get(),
                                         options.certificate.c_str())
      != 1)
    fail(options.certificate, certificate, reason());
  if (SSL_CTX_use_PrivateKey_file(context.get(), options.key.c_str(),
                                  SSL_FILETYPE_PEM)
      != 1)
    fail(options.key, key, reason());
  if (SSL_CTX_load_verify_locations(context.get(), options.ca.c_str(), nullptr)
      != 1)
    fail(options.ca, ca, reason());
  return context;
}

/// Otherwise, others that trust the same CAs would refuse each connection. A
/// node may serve or join: which role its certificate is made out for is not
/// checked.
void require_trusted(SSL_CTX* context, const tls_options& options) {
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(context, &chain);
  std::unique_ptr<X509_STORE_CTX, void (*)(X509_STORE_CTX*)> check{
      X509_STORE_CTX_new(), X509_STORE_CTX_free};
  if (!check
      || X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(context),
                             SSL_CTX_get0_certificate(context), chain)
             != 1)
    throw error{errc::invalid_argument, "use_tls: OpenSSL: " + reason()};
  auto trusted = X509_verify_cert(check.get()) == 1;
  ERR_clear_error();
  if (trusted)
    return;
  auto why = X509_STORE_CTX_get_error(check.get());
  auto above = X509_STORE_CTX_get_error_depth(check.get()) > 0;
  fail(options.certificate,
       "a certificate that is valid now and signed by a CA of " + options.ca,
       fmt::format("{}{}", X509_verify_cert_error_string(why),
                   above ? ", at a CA above it" : ""));
}

} // namespace

void use_tls(caf::actor_system_config& config, const tls_options& options) {
  auto context = check_files(options);
  require_trusted(context.get(), options);
  config.load<caf::openssl::manager>();
  detail::set_tls_files(config, options.certificate, options.key, options.ca);
  detail::watch_tls(SSL_CTX_get0_certificate(context.get()));
}

} // namespace syncnorm
