#include "tests/actors/system.hpp"
#include "tests/actors/wire.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

template <class T>
std::vector<T> special_values() {
  using limits = std::numeric_limits<T>;
  if constexpr (std::is_integral_v<T>)
    return {0, 1, -1, limits::min(), limits::max()};
  else
    return {T{0},
            -T{0},
            T{1},
            -T{1},
            limits::infinity(),
            -limits::infinity(),
            limits::quiet_NaN(),
            -limits::quiet_NaN(),
            std::nan("0x1234") == 0 ? T{0} : static_cast<T>(std::nan("0x1234")),
            limits::denorm_min(),
            -limits::denorm_min(),
            limits::denorm_min() * 12345,
            limits::min(),
            limits::max(),
            limits::lowest(),
            limits::epsilon()};
}

template <class T>
bool same_bits(const shared_array<T>& x, const shared_array<T>& y) {
  using bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  if (x.size() != y.size())
    return false;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::bit_cast<bits>(x[i]) != std::bit_cast<bits>(y[i]))
      return false;
  return true;
}

} // namespace

TEST_CASE_TEMPLATE("every value crosses the wire with the same bits", T, float,
                   double, std::int64_t) {
  init_types();
  shared_array<T> sent{special_values<T>()};
  auto bytes = to_wire(sent);
  shared_array<T> got;
  REQUIRE(from_wire(bytes, got));
  CHECK(same_bits(sent, got));
}

namespace {

// begin: own_type
struct measurement {
  double value = 0;
  float weight = 0;
};

template <class Inspector>
auto inspect(Inspector& f, measurement& x) {
  return compat::inspect_object(f, x, "measurement",
                                compat::field("value", x.value),
                                compat::field("weight", x.weight));
}
// end: own_type

template <class T>
void check_field(T measurement::*field, T value) {
  measurement x;
  x.*field = value;
  measurement y{1, 1};
  REQUIRE(deserialize(serialize(x), y));
  CHECK(std::memcmp(&(x.*field), &(y.*field), sizeof value) == 0);
  CHECK(std::memcmp(&(x.*field), &value, sizeof value) == 0);
}

} // namespace

TEST_CASE_TEMPLATE("a number in a message of one's own crosses the wire with "
                   "the same bits",
                   T, float, double) {
  T measurement::*field = nullptr;
  if constexpr (std::is_same_v<T, float>)
    field = &measurement::weight;
  else
    field = &measurement::value;
  for (auto value : special_values<T>())
    check_field(field, value);
}

TEST_CASE("a number in a message of one's own is shown as a number") {
  CHECK(caf::deep_to_string(measurement{0.5, 2}).find("0.5")
        != std::string::npos);
}

TEST_CASE("the bytes of an array are little-endian behind their count") {
  init_types();
  auto bytes = to_wire(float_array{1.0F});
  REQUIRE(bytes.size() >= 5);
  std::vector<unsigned char> tail(bytes.end() - 4, bytes.end());
  CHECK(tail == std::vector<unsigned char>{0, 0, 0x80, 0x3f});
}

TEST_CASE("an array of any length survives, also longer than one read step") {
  init_types();
  for (std::size_t n : {0U, 1U, 7U, 262'143U, 262'144U, 262'145U, 600'001U}) {
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i)
      values[i] = static_cast<float>(i);
    float_array sent{std::move(values)};
    float_array got;
    REQUIRE(from_wire(to_wire(sent), got));
    CHECK(same_bits(sent, got));
  }
}

TEST_CASE("a count beyond the limit or beyond the bytes is refused") {
  init_types();
  auto bytes = to_wire(float_array{1, 2, 3});
  float_array got{9};
  // Half a message.
  auto half = bytes;
  half.resize(bytes.size() - 1);
  CHECK_FALSE(from_wire(half, got));
  // A count that lies: the first byte is part of the count on both CAF lines.
  for (std::size_t i = 0; i < bytes.size() - 12; ++i) {
    auto lie = bytes;
    lie[i] = 0xff;
    CHECK_FALSE(from_wire(lie, got));
  }
  CHECK(got == float_array{9});
}

TEST_CASE("copies of an array share its memory") {
  float_array x{1, 2, 3};
  auto y = x;
  CHECK(x.data() == y.data());
  CHECK(x == y);
  CHECK(float_array{}.size() == 0);
  CHECK(float_array{} == float_array{});
}

TEST_CASE("an array that was moved from is empty") {
  float_array x{1, 2, 3};
  auto y = std::move(x);
  CHECK(x.size() == 0);
  CHECK(x.data() == nullptr);
  CHECK(y == float_array{1, 2, 3});
}
