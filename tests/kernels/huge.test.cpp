// A tensor of more than 2^31 elements, all of which are written: what 64-bit
// indexing must not miss. Skipped where there is not enough memory.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "kernels/half.hpp"
#include "syncnorm/batch_norm.hpp"
#include "tests/kernels/reserved_memory.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

using namespace syncnorm;

namespace {

constexpr std::int64_t spatial = (std::int64_t{1} << 30) + 77;
constexpr std::int64_t channels = 2;
constexpr std::int64_t elements = channels * spatial;
constexpr std::int64_t tensor_bytes = elements * 2;
constexpr std::int64_t mask_bytes = (elements + 63) / 64 * 8;
/// The tensor, its mask, and what others may ask for meanwhile.
constexpr std::int64_t needed_bytes =
    tensor_bytes + mask_bytes + (std::int64_t{2} << 30);

/// All of it will be written.
class zeroed_memory {
public:
  explicit zeroed_memory(std::int64_t bytes) : memory_{std::size_t(bytes)} {
    memory_.use_huge_pages();
  }

  [[nodiscard]] std::uint16_t* data() {
    return reinterpret_cast<std::uint16_t*>(memory_.data());
  }

private:
  test::reserved_memory memory_;
};

std::uint16_t bits(double value) {
  return to_float16(float(value)).bits;
}

/// How many of the elements [first, last) do not come from `pattern`, repeated
/// from `first` on.
std::int64_t wrong(const std::uint16_t* data, std::int64_t first,
                   std::int64_t last, std::array<double, 2> pattern) {
  auto even = bits(pattern[0]);
  auto odd = bits(pattern[1]);
  std::int64_t result = 0;
  auto i = first;
  for (; i + 2 <= last; i += 2)
    result += (data[i] != even ? 1 : 0) + (data[i + 1] != odd ? 1 : 0);
  return result + (i < last && data[i] != even ? 1 : 0);
}

/// Memory that can be had without harm to others, or as much as a group of
/// processes may have.
std::int64_t available_memory() {
  std::int64_t result = 0;
  std::ifstream info{"/proc/meminfo"};
  for (std::string name, unit; info >> name;)
    if (std::int64_t kib = 0; name == "MemAvailable:" && info >> kib)
      result = kib << 10;
  std::int64_t most = 0;
  std::int64_t used = 0;
  if (std::ifstream{"/sys/fs/cgroup/memory.max"} >> most
      && std::ifstream{"/sys/fs/cgroup/memory.current"} >> used)
    result = std::min(result, most - used);
  return result;
}

} // namespace

TEST_CASE("a tensor of more than 2^31 elements is written to its end") {
  zeroed_memory x{tensor_bytes};
  zeroed_memory y{tensor_bytes};
  zeroed_memory mask{mask_bytes};
  auto* flags = reinterpret_cast<std::uint8_t*>(mask.data());
  std::array mean{1.0F, -2.0F};
  std::array inv_std{1.0F, 0.5F};
  std::array weight{2.0F, 4.0F};
  std::array bias{-1.0F, 5.0F};
  channel_parameters k{mean.data(), inv_std.data(), weight.data(), bias.data()};
  tensor_layout planes{dtype::float16,
                       {1, channels, spatial},
                       memory_format::channels_first,
                       elements,
                       {}};
  auto rows = planes;
  rows.format = memory_format::channels_last;
  auto* out = y.data();

  // (0 - mean) * inv_std * weight + bias, past the caches.
  normalize({}, {x.data(), planes}, k, {out, planes});
  CHECK(wrong(out, 0, spatial, {-3, -3}) == 0);
  CHECK(wrong(out, spatial, elements, {9, 9}) == 0);

  // In place, with ReLU and its mask: the first half has -3 and the second 9 in
  // both channels.
  normalize({}, {out, rows}, k, {out, rows}, {nullptr, true, flags});
  auto half = spatial / 2 * 2;
  CHECK(wrong(out, 0, half, {0, 3}) == 0);
  CHECK(wrong(out, spatial + 1, elements, {15, 27}) == 0);
  CHECK(std::count(flags, flags + half / 8, 0xaa) == half / 8);
  CHECK(std::count(flags + spatial / 8 + 1, flags + elements / 8, 0xff)
        == elements / 8 - spatial / 8 - 1);

  // (dy - mean_dy - (x - mean) * projection) * scale, in place, x = 0; dy is
  // masked, which changes nothing where ReLU has made it 0.
  std::array sum_dy{float(elements), 0.0F};
  std::array sum_dy_xmu{0.0F, float(elements)};
  backward_input({}, {out, rows}, {x.data(), rows}, k,
                 {sum_dy.data(), sum_dy_xmu.data(), elements}, flags,
                 {out, rows});
  CHECK(wrong(out, 0, half, {-2, 5}) == 0);
  CHECK(wrong(out, spatial + 1, elements, {28, 53}) == 0);
}

// 77 is what ctest shows as Skipped.
int main(int argc, char** argv) {
  if (auto found = available_memory(); found < needed_bytes) {
    std::printf("%ld MiB of memory are not enough, %ld MiB are needed\n",
                long(found >> 20), long(needed_bytes >> 20));
    return 77;
  }
  return doctest::Context{argc, argv}.run();
}
