#include "network_access.hpp"

#include "syncnorm/caf_error.hpp"
#include "syncnorm/config.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/publish_master.hpp"

#include <arpa/inet.h>
#include <caf/openssl/manager.hpp>
#include <fmt/format.h>
#include <netinet/in.h>

namespace syncnorm {

bool is_loopback(const std::string& host) {
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1)
    return ntohl(v4.s_addr) >> 24U == 127;
  in6_addr v6{};
  if (::inet_pton(AF_INET6, host.c_str(), &v6) == 1)
    return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

namespace detail {

namespace {

/// Why nobody should serve at, or connect to, that address as it is.
caf::error check_address(const char* function, const std::string& address,
                         bool has_tls, bool insecure) {
  if (has_tls || insecure || is_loopback(address))
    return {};
  return make_error(errc::invalid_argument,
                    fmt::format("{}: expected a loopback address, use_tls, or "
                                "insecure = true, got \"{}\"",
                                function, address));
}

} // namespace

caf::expected<std::size_t> limit_at(const char* function,
                                    caf::actor_system& system,
                                    const std::string& address, bool insecure) {
  if (!system.has_middleman())
    return make_error(errc::invalid_argument,
                      fmt::format("{}: expected a system whose configuration "
                                  "use_network has prepared, got one without "
                                  "CAF's middleman",
                                  function));
  auto refusal =
      check_address(function, address, system.has_openssl_manager(), insecure);
  if (refusal != caf::none)
    return refusal;
  try {
    auto limit = read_defaults(system.config()).max_message;
    return static_cast<std::size_t>(limit);
  } catch (const error& x) {
    return to_caf_error(x);
  }
}

} // namespace detail

} // namespace syncnorm
