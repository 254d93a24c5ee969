#include "syncnorm/batch_norm.hpp"

#include "kernels/math.hpp"
#include "tests/kernels/cases.hpp"
#include "tests/kernels/reference.hpp"
#include "tests/kernels/tolerance.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// Per channel arrays in memory.
struct channels {
  channels(dtype type, std::int64_t count)
      : mean{type, random_channels(count, 11, -1, 1)},
        inv_std{type, random_channels(count, 12, 0.5, 2)},
        weight{type, random_channels(count, 13, -2, 2)} {}

  channel_parameters get() {
    return {mean.data(), inv_std.data(), weight.data(), nullptr};
  }
  [[nodiscard]] parameters rounded() const {
    return {mean.get(), inv_std.get(), weight.get(), {}};
  }

  channel_array mean;
  channel_array inv_std;
  channel_array weight;
};

/// A mask with a random bit for each element, in the order of memory.
struct random_mask {
  explicit random_mask(const tensor_layout& layout)
      : memory{relu_mask_bytes(layout)} {
    std::mt19937 engine{31};
    for (std::size_t i = 0; i < memory.size(); ++i)
      memory.data()[i] = std::byte(engine() & 0xff);
  }

  [[nodiscard]] const std::uint8_t* data() const {
    return reinterpret_cast<const std::uint8_t*>(memory.data());
  }

  /// dy, set to zero where the bit is not set.
  [[nodiscard]] values apply(const values& dy,
                             const tensor_layout& layout) const {
    auto result = dy;
    auto count = layout.shape.channels;
    auto spatial = layout.shape.spatial;
    dy.for_each([&](auto n, auto c, auto s) {
      auto inner = layout.format == memory_format::channels_first
                       ? c * spatial + s
                       : s * count + c;
      auto i = std::size_t(n * count * spatial + inner);
      if ((unsigned(data()[i / 8]) >> (i % 8) & 1U) == 0)
        result.at(n, c, s) = 0;
    });
    return result;
  }

  guarded_memory memory;
};

/// The outputs of `backward_reduce`.
struct sums {
  sums(dtype type, std::int64_t count)
      : dy{type, count},
        dy_xmu{type, count},
        weight_grad{type, count},
        bias_grad{type, count} {}

  backward_sums get() {
    return {dy.data(), dy_xmu.data(), weight_grad.data(), bias_grad.data()};
  }
  [[nodiscard]] bool guards_intact() const {
    return dy.guards_intact() && dy_xmu.guards_intact()
           && weight_grad.guards_intact() && bias_grad.guards_intact();
  }

  channel_array dy;
  channel_array dy_xmu;
  channel_array weight_grad;
  channel_array bias_grad;
};

/// As `one`, but with other gaps between samples, if it has any.
tensor_layout shifted(const layout_case& one, std::int64_t gap) {
  auto result = one.layout;
  result.sample_stride += one.skip == 0 ? 0 : gap;
  return result;
}

void check_reduce(const layout_case& one, const values& x_values,
                  const values& dy_values, bool masked) {
  INFO("masked ", masked);
  auto type = one.layout.type;
  auto count = one.layout.shape.channels;
  channels k{statistics_type(type), count};
  tensor x{one.layout, x_values, one.skip};
  tensor dy{shifted(one, 2), dy_values, 1};
  random_mask mask{one.layout};
  auto gradient = masked ? mask.apply(dy.get(), one.layout) : dy.get();
  sums out{statistics_type(type), count};
  scratch_memory scratch{backward_reduce_workspace(one.layout)};
  backward_reduce({}, dy.view(), x.view(), k.get(),
                  masked ? mask.data() : nullptr, out.get(), scratch.get());
  CHECK(out.guards_intact());
  CHECK(scratch.guards_intact());
  auto want = reference_sums(gradient, x.get(), k.rounded());
  auto tolerance = tolerance::of("backward_reduce", type);
  int wrong = 0;
  for (std::int64_t c = 0; c < count; ++c) {
    auto [sum_dy, sum_dy_xmu] = want[std::size_t(c)];
    auto inv_std = real(k.inv_std[c]);
    expected weight{sum_dy_xmu.value * inv_std, sum_dy_xmu.scale * inv_std};
    auto good = near(out.dy[c], sum_dy, tolerance)
                && near(out.bias_grad[c], sum_dy, tolerance)
                && near(out.dy_xmu[c], sum_dy_xmu, tolerance)
                && near(out.weight_grad[c], weight, tolerance);
    wrong += good ? 0 : 1;
  }
  CHECK(wrong == 0);
}

void check_reduce(const layout_case& one, bool masked) {
  check_reduce(one, random_values(one.layout.shape, 40, 0.5, 2),
               random_values(one.layout.shape, 41, 0.1, 1), masked);
}

/// The number of elements of dx that are wrong.
int wrong_gradients(const values& dx, const values& dy, const values& x,
                    const channels& k, const std::vector<double>& sum_dy,
                    const std::vector<double>& sum_dy_xmu, std::int64_t count,
                    dtype type) {
  auto p = k.rounded();
  auto limit = tolerance::of("backward_input", type);
  int wrong = 0;
  dx.for_each([&](auto n, auto c, auto s) {
    auto i = std::size_t(c);
    auto want = reference_input_gradient(p, i, dy.at(n, c, s), x.at(n, c, s),
                                         sum_dy[i], sum_dy_xmu[i], count);
    wrong +=
        near(dx.at(n, c, s), want, limit, tolerance::smallest(type)) ? 0 : 1;
  });
  return wrong;
}

bool equal(const values& a, const values& b) {
  auto result = true;
  a.for_each([&](auto n, auto c, auto s) {
    result = result && a.at(n, c, s) == b.at(n, c, s);
  });
  return result;
}

/// Where the results of `backward_input` go; of `dx_alone`, no gradient of a
/// residual is asked for.
enum class place { apart, dx_alone, dx_over_dy, dx_over_x, residual_over_dy };

void check_input(const layout_case& one, bool masked, place where) {
  INFO("masked ", masked, ", place ", int(where));
  auto type = one.layout.type;
  auto shape = one.layout.shape;
  auto stored = statistics_type(type);
  auto total = 2 * shape.per_channel() + 3; // other replicas have some, too
  channels k{stored, shape.channels};
  channel_array sum_dy{stored, random_channels(shape.channels, 16, -5, 5)};
  channel_array sum_dy_xmu{stored, random_channels(shape.channels, 17, -5, 5)};
  auto alone = where == place::dx_alone;
  auto out_layout = where == place::apart || alone ? shifted(one, 4)
                    : where == place::dx_over_x    ? shifted(one, 2)
                                                   : one.layout;
  tensor x{shifted(one, 2), random_values(shape, 42, 0, 2), 1};
  tensor dy{one.layout, random_values(shape, 43), one.skip};
  auto input = x.get();
  tensor dx{out_layout, one.skip};
  tensor residual{out_layout, 2};
  random_mask mask{one.layout};
  auto gradient = masked ? mask.apply(dy.get(), one.layout) : dy.get();
  auto& dx_out = where == place::dx_over_dy  ? dy
                 : where == place::dx_over_x ? x
                                             : dx;
  auto& residual_out = where == place::residual_over_dy ? dy : residual;
  backward_input({}, dy.view(), x.view(), k.get(),
                 {sum_dy.data(), sum_dy_xmu.data(), total},
                 masked ? mask.data() : nullptr, dx_out.view(),
                 alone ? nullptr : residual_out.view().data());
  CHECK(wrong_gradients(dx_out.get(), gradient, input, k, sum_dy.get(),
                        sum_dy_xmu.get(), total, type)
        == 0);
  CHECK((alone || equal(residual_out.get(), gradient)));
  CHECK(dx_out.guards_intact());
  CHECK(residual_out.guards_intact());
}

} // namespace

TEST_CASE("backward_reduce follows its formula, whatever dtype and layout") {
  for_each_case(small_shapes, [](const layout_case& one) {
    check_reduce(one, false);
    check_reduce(one, true);
  });
}

TEST_CASE("backward_reduce of tensors in slabs is right as well") {
  for (const auto& shape : large_shapes)
    for (const auto& one : layouts_of(dtype::float32, shape)) {
      INFO(describe(one.layout));
      check_reduce(one, false);
      check_reduce(one, true);
    }
}

TEST_CASE("roundings to one side do not add up over many tiny planes") {
  for_each_target([&] {
    for (const auto& shape : tiny_planes)
      for (auto unit : {0.3, 0.7, 0.9})
        for (const auto& one : layouts_of(dtype::float32, shape)) {
          INFO(describe(one.layout), ", unit ", unit);
          auto source = alternating_values(
              shape, [unit](auto c) { return unit * (1 + double(c) / 12); });
          check_reduce(one, source, source, false);
        }
  });
}

TEST_CASE("sums of float64 do not grow less exact with samples that have "
          "gaps") {
  // The same value everywhere: each addition of a partial sum rounds to one
  // side for long.
  tensor_shape shape{30'000, 4, 2};
  values source{shape};
  source.for_each([&](auto n, auto c, auto s) { source.at(n, c, s) = 0.7; });
  for_each_target([&] {
    for (const auto& one : layouts_of(dtype::float64, shape)) {
      INFO(describe(one.layout));
      check_reduce(one, source, source, false);
      check_reduce(one, source, source, true);
    }
  });
}

TEST_CASE("backward_reduce of an empty batch gives zeros") {
  for (tensor_shape shape : {tensor_shape{0, 3, 4}, {2, 3, 0}}) {
    auto layout =
        make_layout(dtype::float16,
                    std::vector{shape.samples, shape.channels, shape.spatial});
    channels k{dtype::float32, 3};
    // What a variance of 0 leaves behind, or one of NaN.
    k.inv_std = {dtype::float32,
                 std::vector{1.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}};
    sums out{dtype::float32, 3};
    backward_reduce({}, {nullptr, layout}, {nullptr, layout}, k.get(), nullptr,
                    out.get(), {});
    for (std::int64_t c = 0; c < 3; ++c) {
      CHECK(out.dy[c] == 0);
      CHECK(out.dy_xmu[c] == 0);
      CHECK(out.weight_grad[c] == 0);
      CHECK(out.bias_grad[c] == 0);
    }
  }
}

TEST_CASE("gradients of weight and bias are optional") {
  tensor_layout layout{dtype::float32, {3, 5, 7}, {}, 35, {}};
  channels k{dtype::float32, 5};
  tensor x{layout, random_values(layout.shape, 44)};
  tensor dy{layout, random_values(layout.shape, 45)};
  sums all{dtype::float32, 5};
  sums some{dtype::float32, 5};
  scratch_memory scratch{backward_reduce_workspace(layout)};
  backward_reduce({}, dy.view(), x.view(), k.get(), nullptr, all.get(),
                  scratch.get());
  backward_reduce({}, dy.view(), x.view(), {k.mean.data()}, nullptr,
                  {some.dy.data(), some.dy_xmu.data()}, scratch.get());
  CHECK(all.dy.get() == some.dy.get());
  CHECK(all.dy_xmu.get() == some.dy_xmu.get());
  CHECK(some.weight_grad.untouched());
}

TEST_CASE("backward_input follows its formula, whatever dtype and layout") {
  for_each_case(small_shapes, [](const layout_case& one) {
    check_input(one, false, place::dx_alone);
    check_input(one, false, place::apart);
    check_input(one, true, place::apart);
    check_input(one, true, place::dx_over_dy);
    check_input(one, true, place::dx_over_x);
    check_input(one, true, place::residual_over_dy);
  });
}

TEST_CASE("gaps of some tensors, where others have none, are skipped") {
  for (tensor_shape shape : {tensor_shape{3, 1, 7}, {3, 5, 7}, {4, 6, 1}})
    for (auto format : all_formats)
      for (auto gaps : {std::array{5, 0, 0}, {0, 5, 0}, {0, 0, 5}}) {
        auto layout = [&](std::size_t i) {
          auto stride = shape.channels * shape.spatial + gaps[i];
          return tensor_layout{dtype::float32, shape, format, stride, {}};
        };
        INFO(describe(layout(0)), ", gaps of x ", gaps[1], ", of dx ", gaps[2]);
        channels k{dtype::float32, shape.channels};
        tensor dy{layout(0), random_values(shape, 46)};
        tensor x{layout(1), random_values(shape, 47, 0, 2)};
        tensor dx{layout(2)};
        sums out{dtype::float32, shape.channels};
        scratch_memory scratch{backward_reduce_workspace(layout(1))};
        backward_reduce({}, dy.view(), x.view(), k.get(), nullptr, out.get(),
                        scratch.get());
        auto want = reference_sums(dy.get(), x.get(), k.rounded());
        auto limit = tolerance::of("backward_reduce", dtype::float32);
        for (std::int64_t c = 0; c < shape.channels; ++c) {
          auto [sum_dy, sum_dy_xmu] = want[std::size_t(c)];
          CHECK(near(out.dy[c], sum_dy, limit));
          CHECK(near(out.dy_xmu[c], sum_dy_xmu, limit));
        }
        auto count = shape.per_channel();
        backward_input({}, dy.view(), x.view(), k.get(),
                       {out.dy.data(), out.dy_xmu.data(), count}, nullptr,
                       dx.view(), nullptr);
        CHECK(wrong_gradients(dx.get(), dy.get(), x.get(), k, out.dy.get(),
                              out.dy_xmu.get(), count, dtype::float32)
              == 0);
        CHECK(dx.guards_intact());
      }
}

TEST_CASE("without weight it is 1 in the input's gradient") {
  for (const auto& one : layouts_of(dtype::float32, {3, 5, 49})) {
    INFO(describe(one.layout));
    channels k{dtype::float32, 5};
    k.weight = channel_array{dtype::float32, std::vector(5, 1.0)};
    channel_array sum_dy{dtype::float32, random_channels(5, 18, -5, 5)};
    channel_array sum_dy_xmu{dtype::float32, random_channels(5, 19, -5, 5)};
    tensor x{one.layout, random_values(one.layout.shape, 48, 0, 2)};
    tensor dy{one.layout, random_values(one.layout.shape, 49)};
    tensor dx{one.layout};
    backward_input({}, dy.view(), x.view(), {k.mean.data(), k.inv_std.data()},
                   {sum_dy.data(), sum_dy_xmu.data(), 147}, nullptr, dx.view());
    CHECK(wrong_gradients(dx.get(), dy.get(), x.get(), k, sum_dy.get(),
                          sum_dy_xmu.get(), 147, dtype::float32)
          == 0);
  }
}

TEST_CASE("gradients of several blocks are the same") {
  for (const auto& shape : block_shapes)
    for (auto type : {dtype::float32, dtype::bfloat16})
      for (const auto& one : layouts_of(type, shape)) {
        INFO(describe(one.layout));
        check_input(one, false, place::dx_alone);
        check_input(one, true, place::dx_over_dy);
      }
}

TEST_CASE("gradients too large for the caches are the same") {
  for (tensor_shape shape :
       {tensor_shape{2, 5, 600'001}, {13, 513, 997}, {2, 16, 170'000}})
    for (const auto& one : layouts_of(dtype::float32, shape)) {
      INFO(describe(one.layout));
      check_input(one, false, place::dx_alone);
      check_input(one, true, place::apart);
    }
}

TEST_CASE("gradients that go past the caches are the same on each kind of "
          "CPU") {
  for (auto type : {dtype::float32, dtype::bfloat16})
    for (const auto& one : far_apart(type)) {
      INFO(describe(one.layout));
      for_each_cpu([&] {
        check_input(one, false, place::dx_alone);
        check_input(one, true, place::apart);
      });
    }
}

TEST_CASE("NaN in dy or x stays in its channel") {
  for_each_target([] {
    auto bad = std::numeric_limits<double>::quiet_NaN();
    for (tensor_shape shape :
         {tensor_shape{3, 5, 600}, {3, 5, 49}, {40, 70, 1}})
      for (auto type : all_types)
        for (const auto& one : layouts_of(type, shape))
          for (auto in_dy : {false, true}) {
            INFO(describe(one.layout));
            auto stored = statistics_type(type);
            auto source_x = random_values(shape, 46);
            auto source_dy = random_values(shape, 47);
            channels k{stored, shape.channels};
            auto run = [&](sums& out) {
              tensor x{one.layout, source_x, one.skip};
              tensor dy{one.layout, source_dy, one.skip};
              scratch_memory scratch{backward_reduce_workspace(one.layout)};
              backward_reduce({}, dy.view(), x.view(), k.get(), nullptr,
                              out.get(), scratch.get());
            };
            sums want{stored, shape.channels};
            run(want);
            (in_dy ? source_dy : source_x).at(2, 3, shape.spatial / 2) = bad;
            sums got{stored, shape.channels};
            run(got);
            CHECK(std::isnan(got.dy_xmu[3]));
            for (std::int64_t c = 0; c < shape.channels; ++c)
              if (c != 3) {
                REQUIRE(got.dy[c] == want.dy[c]);
                REQUIRE(got.dy_xmu[c] == want.dy_xmu[c]);
              }
          }
  });
}

namespace {

/// @param fused  with a mask and the gradient of a residual.
void check_eval(const layout_case& one, eps_mode mode, bool fused) {
  auto type = one.layout.type;
  auto stored = statistics_type(type);
  auto count = one.layout.shape.channels;
  channel_array var{stored, random_channels(count, 15, 0, 2)};
  channel_array weight{stored, random_channels(count, 13, -2, 2)};
  tensor dy{one.layout, random_values(one.layout.shape, 48), one.skip};
  tensor dx{shifted(one, 3), one.skip};
  tensor residual{shifted(one, 3), 2};
  random_mask mask{one.layout};
  backward_input_eval({}, dy.view(), {nullptr, var.data()}, 0.25, mode,
                      {nullptr, nullptr, weight.data()},
                      fused ? mask.data() : nullptr, dx.view(),
                      fused ? residual.view().data() : nullptr);
  auto gradient = fused ? mask.apply(dy.get(), one.layout) : dy.get();
  auto got = dx.get();
  int wrong = 0;
  got.for_each([&](auto n, auto c, auto s) {
    auto scale =
        real(weight[c]) * real(math::inverse_deviation(var[c], 0.25, mode));
    auto want = scale * real(gradient.at(n, c, s));
    wrong +=
        near(got.at(n, c, s), {want, std::abs(want)},
             tolerance::of("backward_input", type), tolerance::smallest(type))
            ? 0
            : 1;
  });
  CHECK(wrong == 0);
  CHECK((!fused || equal(residual.get(), gradient)));
  CHECK(dx.guards_intact());
}

} // namespace

TEST_CASE("the backward pass of evaluation scales the masked gradient") {
  for_each_case({{3, 5, 49}, {2, 3, 700}, {40, 130, 1}, {9, 7, 3}},
                [](const layout_case& one) {
                  for (auto mode : {eps_mode::plus, eps_mode::clamp})
                    for (auto fused : {false, true})
                      check_eval(one, mode, fused);
                });
}
