// The backward pass against finite differences of the forward pass.

#include "syncnorm/batch_norm.hpp"
#include "tests/kernels/cases.hpp"
#include "tests/kernels/tolerance.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// Per channel arrays.
struct statistics {
  std::vector<double> mean;
  /// inv_std or, in evaluation, the variance.
  std::vector<double> spread;
};

/// All of batch normalization in float64, forward, for one cotangent.
struct layer {
  tensor_layout layout;
  values weight_of_y; // the cotangent: the loss is sum(y * weight_of_y)
  std::vector<double> weight;
  std::vector<double> bias;
  double eps = 1e-3;
  eps_mode mode = eps_mode::plus;
  /// y = relu(... + residual)
  bool fused = false;
  values residual{layout.shape};
  /// Of evaluation; without mean: training.
  statistics running{};

  [[nodiscard]] bool evaluates() const {
    return !running.mean.empty();
  }

  [[nodiscard]] statistics forward_statistics(tensor& x) const {
    auto count = layout.shape.channels;
    channel_array mean{dtype::float64, count};
    channel_array m2{dtype::float64, count};
    moments_view moments{0, mean.data(), m2.data(), count, dtype::float64, {}};
    scratch_memory scratch{batch_moments_workspace(layout)};
    batch_moments({}, x.view(), moments, scratch.get());
    finalize_moments({}, moments, {.eps = eps, .mode = mode}, mean.data(),
                     m2.data(), {});
    return {mean.get(), m2.get()};
  }

  /// Returns y, and sets the mask where there is one.
  values forward(const values& source, guarded_memory& mask) const {
    tensor x{layout, source};
    tensor added{layout, residual};
    channel_array w{dtype::float64, weight};
    channel_array b{dtype::float64, bias};
    tensor y{layout};
    fused_tail tail;
    if (fused)
      tail = {added.view().data(), true,
              reinterpret_cast<std::uint8_t*>(mask.data())};
    auto found = evaluates() ? running : forward_statistics(x);
    channel_array mean{dtype::float64, found.mean};
    channel_array spread{dtype::float64, found.spread};
    if (evaluates())
      normalize_eval({}, x.view(), {mean.data(), spread.data()}, eps, mode,
                     {nullptr, nullptr, w.data(), b.data()}, y.view(), tail);
    else
      normalize({}, x.view(), {mean.data(), spread.data(), w.data(), b.data()},
                y.view(), tail);
    return y.get();
  }

  [[nodiscard]] double loss(const values& source) const {
    guarded_memory mask{relu_mask_bytes(layout)};
    auto out = forward(source, mask);
    double result = 0;
    out.for_each([&](auto n, auto c, auto s) {
      result += out.at(n, c, s) * weight_of_y.at(n, c, s);
    });
    return result;
  }
};

/// The gradients that the kernels give.
struct gradients {
  values input;
  values residual;
  std::vector<double> weight;
  std::vector<double> bias;
};

gradients backward(const layer& one, const values& source) {
  const auto& layout = one.layout;
  auto channels = layout.shape.channels;
  guarded_memory mask{relu_mask_bytes(layout)};
  one.forward(source, mask);
  const auto* bits =
      one.fused ? reinterpret_cast<const std::uint8_t*>(mask.data()) : nullptr;
  tensor x{layout, source};
  tensor dy{layout, one.weight_of_y};
  auto found = one.evaluates() ? one.running : one.forward_statistics(x);
  auto inv_stds = found.spread;
  if (one.evaluates())
    for (auto& value : inv_stds)
      value = 1 / std::sqrt(value + one.eps);
  channel_array mean{dtype::float64, found.mean};
  channel_array spread{dtype::float64, found.spread};
  channel_array inv_std{dtype::float64, inv_stds};
  channel_array weight{dtype::float64, one.weight};
  channel_array sum_dy{dtype::float64, channels};
  channel_array sum_dy_xmu{dtype::float64, channels};
  channel_array weight_grad{dtype::float64, channels};
  channel_array bias_grad{dtype::float64, channels};
  scratch_memory scratch{backward_reduce_workspace(layout)};
  channel_parameters k{mean.data(), inv_std.data(), weight.data()};
  backward_reduce(
      {}, dy.view(), x.view(), k, bits,
      {sum_dy.data(), sum_dy_xmu.data(), weight_grad.data(), bias_grad.data()},
      scratch.get());
  if (one.mode == eps_mode::clamp)
    clear_clamped({}, inv_std.data(), one.eps, channels, dtype::float64,
                  sum_dy_xmu.data());
  tensor dx{layout};
  tensor residual_grad{layout};
  if (one.evaluates())
    backward_input_eval({}, dy.view(), {mean.data(), spread.data()}, one.eps,
                        one.mode, k, bits, dx.view(),
                        residual_grad.view().data());
  else
    backward_input(
        {}, dy.view(), x.view(), k,
        {sum_dy.data(), sum_dy_xmu.data(), layout.shape.per_channel()}, bits,
        dx.view(), residual_grad.view().data());
  return {dx.get(), residual_grad.get(), weight_grad.get(), bias_grad.get()};
}

constexpr tensor_shape shape{3, 4, 6};

/// A layer with random parameters and cotangent.
layer random_layer(memory_format format) {
  return {{dtype::float64, shape, format, 24, {}},
          random_values(shape, 50),
          random_channels(4, 51, 0.5, 2),
          random_channels(4, 52, -1, 1)};
}

void check_gradients(layer one, values source) {
  auto tolerance = tolerance::of("finite differences", dtype::float64);
  auto step = 1e-5;
  auto got = backward(one, source);
  auto slope = [&](double& variable) {
    auto old = variable;
    variable = old + step;
    auto above = one.loss(source);
    variable = old - step;
    auto below = one.loss(source);
    variable = old;
    return (above - below) / (2 * step);
  };
  source.for_each([&](auto n, auto c, auto s) {
    CHECK(std::abs(slope(source.at(n, c, s)) - got.input.at(n, c, s))
          < tolerance);
    if (one.fused)
      CHECK(std::abs(slope(one.residual.at(n, c, s)) - got.residual.at(n, c, s))
            < tolerance);
  });
  for (std::size_t c = 0; c < 4; ++c) {
    CHECK(std::abs(slope(one.weight[c]) - got.weight[c]) < tolerance);
    CHECK(std::abs(slope(one.bias[c]) - got.bias[c]) < tolerance);
  }
}

} // namespace

TEST_CASE("gradients are those of finite differences, for random cotangents") {
  for (auto format : all_formats)
    check_gradients(random_layer(format), random_values(shape, 53, 1, 2));
}

TEST_CASE("with ReLU and residual they are as well, the residual's, too") {
  for (auto format : all_formats) {
    auto one = random_layer(format);
    one.fused = true;
    one.residual = random_values(shape, 54);
    check_gradients(one, random_values(shape, 53, 1, 2));
  }
}

TEST_CASE("a clamped variance is a constant to the gradient") {
  for (auto format : all_formats) {
    auto one = random_layer(format);
    one.eps = 1;
    one.mode = eps_mode::clamp;
    // Channels 0 and 1 have a variance of about 0.2, the others of 4.
    auto source = random_values(shape, 53, 1, 2);
    source.for_each(
        [&](auto n, auto c, auto s) { source.at(n, c, s) *= c < 2 ? 0.2 : 1; });
    check_gradients(one, source);
  }
}

TEST_CASE("in evaluation the statistics are constants to the gradient") {
  for (auto format : all_formats)
    for (auto fused : {false, true}) {
      auto one = random_layer(format);
      one.running = {random_channels(4, 55, -1, 1),
                     random_channels(4, 56, 0.5, 2)};
      one.fused = fused;
      one.residual = random_values(shape, 54);
      check_gradients(one, random_values(shape, 53, 1, 2));
    }
}
