#include "syncnorm/batch_norm.hpp"

#include "kernels/math.hpp"
#include "tests/kernels/cases.hpp"
#include "tests/kernels/reference.hpp"
#include "tests/kernels/tolerance.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// Per channel arrays in memory, and their values after rounding.
struct channels {
  channels(dtype type, std::int64_t count)
      : mean{type, random_channels(count, 11, -1, 1)},
        inv_std{type, random_channels(count, 12, 0.5, 2)},
        weight{type, random_channels(count, 13, -2, 2)},
        bias{type, random_channels(count, 14, -1, 1)} {}

  channel_parameters get() {
    return {mean.data(), inv_std.data(), weight.data(), bias.data()};
  }
  [[nodiscard]] parameters rounded() const {
    return {mean.get(), inv_std.get(), weight.get(), bias.get()};
  }

  channel_array mean;
  channel_array inv_std;
  channel_array weight;
  channel_array bias;
};

/// What is fused behind a normalization in a test.
struct options {
  bool residual = false;
  bool relu = false;
  bool mask = false;
};

/// The bit of an element in a mask: in the order of memory, without gaps.
bool bit_of(const guarded_memory& mask, const tensor_layout& layout,
            std::int64_t n, std::int64_t c, std::int64_t s) {
  auto [samples, channels, spatial] = layout.shape;
  auto inner = layout.format == memory_format::channels_first
                   ? c * spatial + s
                   : s * channels + c;
  auto i = std::size_t(n * channels * spatial + inner);
  return (unsigned(mask.data()[i / 8]) >> (i % 8) & 1U) != 0;
}

/// The number of elements of `y`, or bits of `mask`, that are wrong.
int wrong_elements(const values& x, const values& residual, const values& y,
                   const parameters& p, const options& fused,
                   const guarded_memory& mask, const tensor_layout& layout) {
  int wrong = 0;
  auto limit = tolerance::of("normalize", layout.type);
  x.for_each([&](auto n, auto c, auto s) {
    auto want = reference_normalize(p, std::size_t(c), x.at(n, c, s),
                                    fused.residual ? residual.at(n, c, s) : 0);
    // On which side of zero a value is, is certain beyond its tolerance only.
    auto certain = std::abs(want.value) > real(limit) * want.scale;
    if (fused.mask && certain
        && bit_of(mask, layout, n, c, s) != (want.value > 0))
      ++wrong;
    if (fused.relu)
      want.value = std::max(want.value, real(0));
    wrong += near(y.at(n, c, s), want, limit, tolerance::smallest(layout.type))
                 ? 0
                 : 1;
  });
  return wrong;
}

void check_normalize(const layout_case& one, const options& fused,
                     bool in_place) {
  INFO("residual ", fused.residual, ", relu ", fused.relu, ", mask ",
       fused.mask, ", in place ", in_place);
  const auto& layout = one.layout;
  channels k{statistics_type(layout.type), layout.shape.channels};
  tensor x{layout, random_values(layout.shape, 20, 0, 2), one.skip};
  tensor residual{layout, random_values(layout.shape, 21), one.skip + 1};
  // The output's samples lie apart otherwise than the input's.
  auto out_layout = layout;
  out_layout.sample_stride += in_place || one.skip == 0 ? 0 : 2;
  tensor moved_residual{out_layout, residual.get(), 1};
  tensor y{out_layout, 2};
  guarded_memory mask{relu_mask_bytes(layout)};
  auto source = x.get();
  fused_tail tail;
  tail.residual = fused.residual ? moved_residual.view().data() : nullptr;
  tail.relu = fused.relu;
  if (fused.mask)
    tail.mask = reinterpret_cast<std::uint8_t*>(mask.data());
  auto& out = in_place ? x : y;
  normalize({}, x.view(), k.get(), out.view(), tail);
  CHECK(wrong_elements(source, residual.get(), out.get(), k.rounded(), fused,
                       mask, layout)
        == 0);
  CHECK(out.guards_intact());
  CHECK(mask.guards_intact());
}

} // namespace

TEST_CASE("normalize follows its formula, whatever dtype and layout") {
  for_each_case(small_shapes, [](const layout_case& one) {
    check_normalize(one, {}, false);
    check_normalize(one, {}, true);
  });
}

TEST_CASE("residual, ReLU and its mask are fused in any combination") {
  for_each_case(small_shapes, [](const layout_case& one) {
    check_normalize(one, {.residual = true}, false);
    check_normalize(one, {.relu = true}, true);
    check_normalize(one, {.relu = true, .mask = true}, false);
    check_normalize(one, {.residual = true, .relu = true, .mask = true}, true);
  });
}

TEST_CASE("outputs of several blocks are the same") {
  for (const auto& shape : block_shapes)
    for (auto type : {dtype::float32, dtype::bfloat16})
      for (const auto& one : layouts_of(type, shape)) {
        INFO(describe(one.layout));
        check_normalize(one, {}, true);
        check_normalize(one, {.residual = true, .relu = true, .mask = true},
                        false);
      }
}

TEST_CASE("outputs too large for the caches are the same") {
  // 20 MiB and more are written past the caches.
  for (tensor_shape shape : {tensor_shape{2, 5, 600'001},
                             {9, 3, 210'011},
                             {13, 513, 997},
                             {2, 16, 170'000}})
    for (const auto& one : layouts_of(dtype::float32, shape)) {
      INFO(describe(one.layout));
      check_normalize(one, {}, false);
      check_normalize(one, {.residual = true, .relu = true, .mask = true},
                      false);
    }
  for (const auto& one : layouts_of(dtype::bfloat16, {3, 7, 600'001})) {
    INFO(describe(one.layout));
    check_normalize(one, {}, false);
  }
}

TEST_CASE("outputs that go past the caches are the same on each kind of CPU") {
  for (auto type : {dtype::float32, dtype::bfloat16})
    for (const auto& one : far_apart(type)) {
      INFO(describe(one.layout));
      for_each_cpu([&] {
        check_normalize(one, {}, false);
        check_normalize(one, {.residual = true, .relu = true, .mask = true},
                        false);
      });
    }
}

TEST_CASE("the sample stride of a single sample may be any number") {
  constexpr auto stride = std::numeric_limits<std::int64_t>::max();
  for (auto format : all_formats) {
    layout_case one{{dtype::float32, {1, 5, 49}, format, stride, {}}};
    check_normalize(one, {}, false);
    check_normalize(one, {.relu = true, .mask = true}, true);
  }
}

TEST_CASE("gaps of the input alone, or of the output alone, are skipped") {
  for (tensor_shape shape : {tensor_shape{3, 1, 7}, {3, 5, 7}, {4, 6, 1}})
    for (auto format : all_formats)
      for (auto [in_gap, out_gap] : {std::pair{5, 0}, {0, 5}}) {
        auto gapless = shape.channels * shape.spatial;
        tensor_layout in{dtype::float32, shape, format, gapless + in_gap, {}};
        auto out = in;
        out.sample_stride = gapless + out_gap;
        INFO(describe(in), ", that of the output ", out.sample_stride);
        channels k{dtype::float32, shape.channels};
        tensor x{in, random_values(shape, 27, 0, 2)};
        tensor y{out};
        guarded_memory mask{relu_mask_bytes(in)};
        normalize({}, x.view(), k.get(), y.view());
        auto source = x.get();
        CHECK(wrong_elements(source, source, y.get(), k.rounded(), {}, mask, in)
              == 0);
        CHECK(y.guards_intact());
      }
}

TEST_CASE("zero is not positive, whatever its sign") {
  tensor_shape shape{2, 3, 17};
  values zeros{shape};
  zeros.for_each([&](auto n, auto c, auto s) {
    zeros.at(n, c, s) = s % 2 == 0 ? 0.0 : -0.0;
  });
  for_each_target([&] {
    for (auto type : all_types)
      for (const auto& one : layouts_of(type, shape)) {
        INFO(describe(one.layout));
        auto stored = statistics_type(type);
        channel_array mean{stored, std::vector(3, 0.0)};
        channel_array inv_std{stored, std::vector(3, 1.0)};
        tensor x{one.layout, zeros, one.skip};
        tensor y{one.layout, one.skip};
        guarded_memory mask{relu_mask_bytes(one.layout)};
        normalize(
            {}, x.view(), {mean.data(), inv_std.data()}, y.view(),
            {nullptr, true, reinterpret_cast<std::uint8_t*>(mask.data())});
        int positive = 0;
        zeros.for_each([&](auto n, auto c, auto s) {
          positive += bit_of(mask, one.layout, n, c, s) ? 1 : 0;
        });
        CHECK(positive == 0);
      }
  });
}

TEST_CASE("without weight and bias they are 1 and 0") {
  for (const auto& one : layouts_of(dtype::float32, {3, 5, 49})) {
    channels k{dtype::float32, 5};
    k.weight = channel_array{dtype::float32, std::vector(5, 1.0)};
    k.bias = channel_array{dtype::float32, std::vector(5, 0.0)};
    tensor x{one.layout, random_values(one.layout.shape, 22)};
    tensor with{one.layout};
    tensor without{one.layout};
    normalize({}, x.view(), k.get(), with.view());
    normalize({}, x.view(), {k.mean.data(), k.inv_std.data()}, without.view());
    without.get().for_each([&](auto n, auto c, auto s) {
      REQUIRE(with.get().at(n, c, s) == without.get().at(n, c, s));
    });
  }
}

TEST_CASE(
    "NaN passes through ReLU, is not positive, and stays in its element") {
  for_each_target([] {
    for (auto type : all_types)
      for (const auto& one : layouts_of(type, {2, 5, 49})) {
        auto source = random_values(one.layout.shape, 23);
        tensor clean{one.layout, source};
        source.at(1, 3, 17) = std::numeric_limits<double>::quiet_NaN();
        tensor x{one.layout, source};
        channels k{statistics_type(type), 5};
        guarded_memory mask{relu_mask_bytes(one.layout)};
        tensor y{one.layout};
        tensor want{one.layout};
        fused_tail tail{nullptr, true,
                        reinterpret_cast<std::uint8_t*>(mask.data())};
        normalize({}, x.view(), k.get(), y.view(), tail);
        normalize({}, clean.view(), k.get(), want.view(), {nullptr, true});
        auto got = y.get();
        auto expected = want.get();
        CHECK(std::isnan(got.at(1, 3, 17)));
        CHECK_FALSE(bit_of(mask, one.layout, 1, 3, 17));
        got.at(1, 3, 17) = expected.at(1, 3, 17);
        got.for_each([&](auto n, auto c, auto s) {
          REQUIRE(got.at(n, c, s) == expected.at(n, c, s));
        });
      }
  });
}

TEST_CASE("a channel with statistics of NaN leaves the others alone") {
  for (const auto& one : layouts_of(dtype::float32, {2, 70, 3})) {
    tensor x{one.layout, random_values(one.layout.shape, 24)};
    channels k{dtype::float32, 70};
    tensor want{one.layout};
    normalize({}, x.view(), k.get(), want.view());
    auto bad = k.inv_std.get();
    bad[33] = std::numeric_limits<double>::quiet_NaN();
    k.inv_std = channel_array{dtype::float32, bad};
    tensor y{one.layout};
    normalize({}, x.view(), k.get(), y.view());
    auto got = y.get();
    auto expected = want.get();
    got.for_each([&](auto n, auto c, auto s) {
      if (c == 33)
        REQUIRE(std::isnan(got.at(n, c, s)));
      else
        REQUIRE(got.at(n, c, s) == expected.at(n, c, s));
    });
  }
}

TEST_CASE("a NaN is one in every type, whatever its bits, on every CPU") {
  for_each_target([] {
    // The second is what CUDA makes.
    for (std::uint32_t bits :
         {0x7fc00000U, 0x7fffffffU, 0x7f800001U, 0xffc00000U, 0xffffffffU})
      for (auto type : {dtype::float32, dtype::float16, dtype::bfloat16})
        for (const auto& one : layouts_of(type, {2, 70, 3})) {
          tensor x{one.layout, random_values(one.layout.shape, 24)};
          channels k{dtype::float32, 70};
          std::memcpy(static_cast<std::byte*>(k.mean.data()) + 33 * sizeof bits,
                      &bits, sizeof bits);
          tensor y{one.layout};
          normalize({}, x.view(), k.get(), y.view(), {nullptr, true});
          auto got = y.get();
          got.for_each([&](auto n, auto c, auto s) {
            REQUIRE(std::isnan(got.at(n, c, s)) == (c == 33));
          });
        }
  });
}

TEST_CASE("halves are rounded to nearest, ties to even, on every CPU") {
  for_each_target([] {
    for (auto type : {dtype::float16, dtype::bfloat16}) {
      tensor_layout layout{type, {1, 1, 4000}, {}, 4000, {}};
      auto source = random_values(layout.shape, 25, 0, 100);
      // Among them subnormals, overflows and infinities.
      source.at(0, 0, 7) = 1e-6;
      source.at(0, 0, 8) = 65000;
      source.at(0, 0, 9) = std::numeric_limits<double>::infinity();
      source.at(0, 0, 10) = -3e-8;
      tensor x{layout, source};
      tensor y{layout};
      channel_array mean{dtype::float32, std::vector{0.0}};
      channel_array scale{dtype::float32, std::vector{1.0078125 / 3}};
      normalize({}, x.view(), {mean.data(), scale.data()}, y.view());
      auto in = x.get();
      auto out = y.get();
      for (std::int64_t s = 0; s < 4000; ++s) {
        auto want =
            round_to(type, double(float(in.at(0, 0, s)) * float(scale[0])));
        REQUIRE(out.at(0, 0, s) == want);
      }
    }
  });
}

TEST_CASE("every finite float16 is read and written as it is, on every CPU") {
  std::vector<std::uint16_t> x;
  for (unsigned bits = 0; bits <= 0xffff; ++bits)
    if ((bits & 0x7c00) != 0x7c00)
      x.push_back(std::uint16_t(bits));
  auto size = std::int64_t(x.size());
  tensor_layout layout{dtype::float16, {1, 1, size}, {}, size, {}};
  for_each_target([&] {
    const float zero = 0, one = 1, ten = 10;
    std::vector<std::uint16_t> y(x.size());
    normalize({}, {x.data(), layout}, {&zero, &one}, {y.data(), layout});
    // x + 0 is 0 for -0.
    y[0x7c00] = 0x8000;
    CHECK(x == y);
    // 65514 is nearer to 65504 than to infinity.
    normalize({}, {x.data(), layout}, {&zero, &one, nullptr, &ten},
              {y.data(), layout});
    CHECK(y[0x7bff] == 0x7bff);
  });
}

TEST_CASE("evaluation normalizes by running statistics") {
  for_each_case(
      {{3, 5, 49}, {2, 3, 700}, {40, 130, 1}, {9, 7, 3}},
      [](const layout_case& one) {
        auto type = statistics_type(one.layout.type);
        auto count = one.layout.shape.channels;
        for (auto mode : {eps_mode::plus, eps_mode::clamp}) {
          channels k{type, count};
          channel_array var{type, random_channels(count, 15, 0, 2)};
          auto eps = 0.25;
          auto p = k.rounded();
          for (std::size_t c = 0; c < p.inv_std.size(); ++c)
            p.inv_std[c] =
                math::inverse_deviation(var[std::int64_t(c)], eps, mode);
          tensor x{one.layout, random_values(one.layout.shape, 26), one.skip};
          tensor y{one.layout, one.skip};
          guarded_memory mask{relu_mask_bytes(one.layout)};
          fused_tail tail{nullptr, true,
                          reinterpret_cast<std::uint8_t*>(mask.data())};
          normalize_eval({}, x.view(), {k.mean.data(), var.data()}, eps, mode,
                         {nullptr, nullptr, k.weight.data(), k.bias.data()},
                         y.view(), tail);
          CHECK(wrong_elements(x.get(), x.get(), y.get(), p,
                               {.relu = true, .mask = true}, mask, one.layout)
                == 0);
          CHECK(y.guards_intact());
        }
      });
}

TEST_CASE("an epsilon below all floats keeps the deviation of evaluation "
          "finite") {
  const float var = 0;
  const float mean = 0;
  float m2 = 0;
  float inv_std = 0;
  constexpr auto eps = 1e-46;
  finalize_moments({}, {2, &mean, &m2, 1, dtype::float32, {}}, {.eps = eps},
                   &m2, &inv_std, {});
  tensor_layout layout{dtype::float32, {2, 1, 1}, {}, 1, {}};
  const float x[]{0, 1};
  for (auto mode : {eps_mode::plus, eps_mode::clamp}) {
    float y[2];
    normalize_eval({}, {x, layout}, {&mean, &var}, eps, mode, {}, {y, layout});
    CHECK(y[0] == 0);
    CHECK(y[1] == inv_std);
    backward_input_eval({}, {x, layout}, {nullptr, &var}, eps, mode, {},
                        nullptr, {y, layout});
    CHECK(y[0] == 0);
    CHECK(y[1] == inv_std);
  }
}

TEST_CASE("normalize of an empty batch does nothing") {
  channels k{dtype::float32, 3};
  auto layout = make_layout(dtype::float32, std::vector<std::int64_t>{0, 3, 4});
  normalize({}, {nullptr, layout}, k.get(), {nullptr, layout});
}
