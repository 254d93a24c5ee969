#include "syncnorm/shared_tensor.hpp"

#include "tests/actors/stage_fixture.hpp"
#include "tests/actors/wire.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <random>
#include <span>

using namespace syncnorm;
using namespace syncnorm::test;

TEST_CASE("a tensor arrives at another node with the same bits, without gaps") {
  std::mt19937 random{1};
  for (auto type :
       {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16}) {
    std::array<std::int64_t, 3> sizes{3, 2, 5};
    auto layout = make_layout(type, sizes, memory_format::channels_last);
    layout.sample_stride += 7;
    tensor x{layout};
    fill(x, random);
    auto bytes = test::serialize(share(x));
    shared_tensor y;
    REQUIRE(test::deserialize(bytes, y));
    CHECK(y.view().shape() == layout.shape);
    CHECK(y.view().type() == type);
    CHECK(y.view().format() == layout.format);
    CHECK(y.view().sample_stride() == 10);
    auto got = fetch(y);
    for (std::int64_t n = 0; n < 3; ++n)
      for (std::int64_t c = 0; c < 2; ++c)
        for (std::int64_t s = 0; s < 5; ++s)
          CHECK(got.get(got.at(n, c, s)) == x.get(x.at(n, c, s)));
    // Every cut is noticed.
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      shared_tensor z;
      CHECK(!test::deserialize(std::span{bytes}.first(n), z));
    }
  }
}

TEST_CASE("a tensor header that lies is refused") {
  using header = detail::tensor_header;
  auto parse = [](header x, std::uint64_t bytes) {
    return detail::parse_tensor_header(x, bytes).has_value();
  };
  CHECK(parse({0, 0, 2, 3, 4}, 96));
  CHECK(parse({0, 0, 0, 3, 4}, 0));
  CHECK(!parse({0, 0, 2, 3, 4}, 95));
  CHECK(!parse({4, 0, 2, 3, 4}, 96));
  CHECK(!parse({0, 2, 2, 3, 4}, 96));
  CHECK(!parse({-1, 0, 2, 3, 4}, 96));
  CHECK(!parse({0, 0, -2, 3, -4}, 96));
  CHECK(!parse({0, 0, 2, 0, 4}, 0));
  constexpr auto huge = std::int64_t{1} << 62;
  CHECK(!parse({0, 0, huge, huge, 4}, 0));
  // Empty, but long to walk through.
  CHECK(!parse({0, 0, huge, 3, 0}, 0));
  CHECK(!parse({0, 0, 0, huge, 4}, 0));
}
