// Tensors of more than 2^31 elements, in memory that is reserved but, but for
// a few pages, never used.

#include "syncnorm/batch_norm.hpp"
#include "tests/kernels/cases.hpp"
#include "tests/kernels/reserved_memory.hpp"

#include <doctest/doctest.h>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// A tensor of float16.
class sparse_memory : public reserved_memory {
public:
  using reserved_memory::reserved_memory;

  void set(std::int64_t element, double value) {
    write_element(dtype::float16, data() + element * 2, value);
  }
  [[nodiscard]] double get(std::int64_t element) {
    return read_element(dtype::float16, data() + element * 2);
  }
};

constexpr std::int64_t two_31 = std::int64_t{1} << 31;

} // namespace

TEST_CASE("samples may lie more than 2^31 elements apart") {
  constexpr std::int64_t stride = two_31 + 12'345;
  for (auto format : all_formats) {
    INFO(to_string(format));
    tensor_layout layout{dtype::float16, {3, 2, 5}, format, stride, {}};
    auto bytes = std::size_t(2 * stride + 10) * 2;
    sparse_memory x{bytes};
    sparse_memory y{bytes};
    auto source = random_values(layout.shape, 70);
    auto at = [&](auto n, auto c, auto s) {
      return n * stride
             + (format == memory_format::channels_first ? c * 5 + s
                                                        : s * 2 + c);
    };
    source.for_each([&](auto n, auto c, auto s) {
      x.set(at(n, c, s), source.at(n, c, s));
    });
    // The same values close together.
    auto near_layout = layout;
    near_layout.sample_stride = 10;
    tensor near_x{near_layout, source};
    tensor near_y{near_layout};
    channel_array mean{dtype::float32, 2};
    channel_array m2{dtype::float32, 2};
    channel_array near_mean{dtype::float32, 2};
    channel_array near_m2{dtype::float32, 2};
    scratch_memory scratch{batch_moments_workspace(layout)};
    moments_view out{0, mean.data(), m2.data(), 2, dtype::float32, {}};
    moments_view near_out{0, near_mean.data(), near_m2.data(), 2, {}, {}};
    batch_moments({}, {x.data(), layout}, out, scratch.get());
    batch_moments({}, near_x.view(), near_out, scratch.get());
    for (std::int64_t c = 0; c < 2; ++c) {
      CHECK(mean[c] == doctest::Approx(near_mean[c]).epsilon(1e-5));
      CHECK(m2[c] == doctest::Approx(near_m2[c]).epsilon(1e-5));
    }
    std::uint64_t mask = 0;
    std::uint64_t near_mask = 0;
    auto tail_with = [](const void* residual, std::uint64_t& bits) {
      return fused_tail{residual, true, reinterpret_cast<std::uint8_t*>(&bits)};
    };
    channel_parameters k{near_mean.data(), near_m2.data()};
    normalize({}, {x.data(), layout}, k, {y.data(), layout},
              tail_with(x.data(), mask));
    normalize({}, near_x.view(), k, near_y.view(),
              tail_with(near_x.view().data(), near_mask));
    CHECK((mask & 0x3fffffff) == (near_mask & 0x3fffffff));
    auto want = near_y.get();
    want.for_each([&](auto n, auto c, auto s) {
      CHECK(y.get(at(n, c, s)) == want.at(n, c, s));
    });
    total_sums sums{near_mean.data(), near_m2.data(), 15};
    const auto* bits = reinterpret_cast<const std::uint8_t*>(&near_mask);
    backward_input({}, {x.data(), layout}, {x.data(), layout}, k, sums, bits,
                   {y.data(), layout});
    backward_input({}, near_x.view(), near_x.view(), k, sums, bits,
                   near_y.view());
    want = near_y.get();
    want.for_each([&](auto n, auto c, auto s) {
      CHECK(y.get(at(n, c, s)) == want.at(n, c, s));
    });
  }
}

TEST_CASE("a sample may have more than 2^31 elements") {
  constexpr std::int64_t spatial = two_31 / 2 + 77;
  constexpr std::int64_t channels = 3;
  sparse_memory x{std::size_t(channels * spatial) * 2};
  sparse_memory mask{std::size_t(channels * spatial + 63) / 64 * 8};
  for (auto format : all_formats) {
    INFO(to_string(format));
    tensor_layout layout{
        dtype::float16, {1, channels, spatial}, format, channels * spatial, {}};
    // The last element of the last channel alone is not zero.
    auto last = channels * spatial - 1;
    x.set(last, 1000);
    mask.data()[last / 8] = std::byte(1U << (last % 8));
    channel_array mean{dtype::float64, channels};
    channel_array m2{dtype::float64, channels};
    scratch_memory scratch{batch_moments_workspace(layout)};
    moments_view out{0, mean.data(), m2.data(), channels, dtype::float64, {}};
    batch_moments({}, {x.data(), layout}, out, scratch.get());
    auto n = double(spatial);
    CHECK(out.count == spatial);
    CHECK(m2[0] == 0);
    CHECK(m2[1] == 0);
    CHECK(mean[2] == doctest::Approx(1000 / n).epsilon(1e-6));
    CHECK(m2[2] == doctest::Approx(1e6 - 1e6 / n).epsilon(1e-6));
    channel_array zero{dtype::float32, std::vector(channels, 0.0)};
    channel_array sum_dy{dtype::float32, channels};
    channel_array sum_dy_xmu{dtype::float32, channels};
    backward_reduce({}, {x.data(), layout}, {x.data(), layout}, {zero.data()},
                    reinterpret_cast<const std::uint8_t*>(mask.data()),
                    {sum_dy.data(), sum_dy_xmu.data()}, scratch.get());
    CHECK(sum_dy[1] == 0);
    CHECK(sum_dy[2] == 1000);
    CHECK(sum_dy_xmu[2] == 1e6);
  }
}
