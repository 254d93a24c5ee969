#include "trainer/plan/endpoint.hpp"

#include "trainer/failure.hpp"

#include <fmt/format.h>

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

namespace syncnorm::train {

namespace {

[[noreturn]] void fail(std::string_view option, std::string_view expected,
                       std::string_view text) {
  throw failure{
      fmt::format("--{}: expected {}, found \"{}\"", option, expected, text)};
}

/// With or without a zone, as in `fe80::1%eth0`.
bool is_ipv6(std::string_view host) {
  auto zone = host.find('%');
  std::string address{host.substr(0, zone)};
  in6_addr number{};
  return ::inet_pton(AF_INET6, address.c_str(), &number) == 1
         && zone != host.size() - 1;
}

bool has_colon(std::string_view host) {
  return host.find(':') != std::string_view::npos;
}

} // namespace

bool is_host(std::string_view text) {
  auto is_printable = [](unsigned char c) {
    return c > ' ' && c < 127 && c != '/' && c != '[' && c != ']';
  };
  return !text.empty() && std::ranges::all_of(text, is_printable)
         && (!has_colon(text) || is_ipv6(text));
}

endpoint parse_endpoint(std::string_view option, std::string_view text) {
  auto colon = text.rfind(':');
  if (colon == std::string_view::npos)
    fail(option, "HOST:PORT", text);
  auto host = text.substr(0, colon);
  auto number = text.substr(colon + 1);
  auto bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed)
    host = host.substr(1, host.size() - 2);
  if (bracketed ? !is_ipv6(host) : has_colon(host))
    fail(option, "an IPv6 address in brackets, [ADDRESS]:PORT", text);
  if (!is_host(host))
    fail(option, "HOST:PORT", text);
  endpoint result{std::string{host}, 0};
  const auto* end = number.data() + number.size();
  auto [rest, code] = std::from_chars(number.data(), end, result.port);
  // Nobody serves at port 0, which lets the system choose one.
  auto least = option == "join" ? 1 : 0;
  if (code != std::errc{} || rest != end || result.port < least)
    fail(option, fmt::format("a port from {} to 65535", least), text);
  return result;
}

std::string to_string(const endpoint& x) {
  return x.host.find(':') == std::string::npos
             ? fmt::format("{}:{}", x.host, x.port)
             : fmt::format("[{}]:{}", x.host, x.port);
}

} // namespace syncnorm::train
