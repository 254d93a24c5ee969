#include "syncnorm/error.hpp"

#include <doctest/doctest.h>

using namespace syncnorm;

TEST_CASE("an error code survives the way through its name and its number") {
  for (int value = 0; value < 256; ++value) {
    auto code = errc::none;
    if (!from_integer(static_cast<std::uint8_t>(value), code))
      continue;
    auto again = errc::none;
    CHECK(from_string(to_string(code), again));
    CHECK(again == code);
  }
}

TEST_CASE("a name or a number that is no error code leaves the code alone") {
  auto code = errc::stale;
  CHECK_FALSE(from_string("no such code", code));
  CHECK_FALSE(from_integer(255, code));
  CHECK(code == errc::stale);
  CHECK(to_string(static_cast<errc>(255)) == "unknown");
}
