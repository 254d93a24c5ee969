#include "trainer/output/crc32c.hpp"

#include <array>

namespace syncnorm::train {

namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    auto x = i;
    for (int bit = 0; bit < 8; ++bit)
      x = (x >> 1) ^ ((x & 1) != 0 ? 0x82f63b78U : 0U);
    table[i] = x;
  }
  return table;
}

constexpr auto table = make_table();

} // namespace

std::uint32_t crc32c(std::string_view bytes) noexcept {
  auto crc = ~std::uint32_t{0};
  for (auto byte : bytes)
    crc = table[(crc ^ static_cast<std::uint8_t>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

} // namespace syncnorm::train
