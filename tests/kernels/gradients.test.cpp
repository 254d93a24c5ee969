// The backward pass against finite differences of the forward pass.

#include "syncnorm/batch_norm.hpp"
#include "tests/kernels/cases.hpp"
#include "tests/kernels/tolerance.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace syncnorm;
using namespace syncnorm::test;

namespace {

/// All of batch normalization in float64, forward, for one cotangent.
struct layer {
  tensor_layout layout;
  values weight_of_y; // the cotangent: the loss is sum(y * weight_of_y)
  std::vector<double> weight;
  std::vector<double> bias;
  double eps = 1e-3;

  struct statistics {
    std::vector<double> mean;
    std::vector<double> inv_std;
  };

  [[nodiscard]] statistics forward_statistics(tensor& x) const {
    auto count = layout.shape.channels;
    channel_array mean{dtype::float64, count};
    channel_array m2{dtype::float64, count};
    moments_view moments{0, mean.data(), m2.data(), count, dtype::float64, {}};
    scratch_memory scratch{batch_moments_workspace(layout)};
    batch_moments({}, x.view(), moments, scratch.get());
    finalize_moments({}, moments, {.eps = eps}, mean.data(), m2.data(), {});
    return {mean.get(), m2.get()};
  }

  [[nodiscard]] double loss(const values& source) const {
    tensor x{layout, source};
    auto found = forward_statistics(x);
    channel_array mean{dtype::float64, found.mean};
    channel_array inv_std{dtype::float64, found.inv_std};
    channel_array w{dtype::float64, weight};
    channel_array b{dtype::float64, bias};
    tensor y{layout};
    normalize({}, x.view(), {mean.data(), inv_std.data(), w.data(), b.data()},
              y.view());
    auto out = y.get();
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
  std::vector<double> weight;
  std::vector<double> bias;
};

gradients backward(const layer& one, const values& source) {
  const auto& layout = one.layout;
  tensor x{layout, source};
  tensor dy{layout, one.weight_of_y};
  auto found = one.forward_statistics(x);
  channel_array mean{dtype::float64, found.mean};
  channel_array inv_std{dtype::float64, found.inv_std};
  channel_array weight{dtype::float64, one.weight};
  channel_array sum_dy{dtype::float64, layout.shape.channels};
  channel_array sum_dy_xmu{dtype::float64, layout.shape.channels};
  channel_array weight_grad{dtype::float64, layout.shape.channels};
  channel_array bias_grad{dtype::float64, layout.shape.channels};
  scratch_memory scratch{backward_reduce_workspace(layout)};
  channel_parameters k{mean.data(), inv_std.data(), weight.data()};
  backward_reduce(
      {}, dy.view(), x.view(), k, nullptr,
      {sum_dy.data(), sum_dy_xmu.data(), weight_grad.data(), bias_grad.data()},
      scratch.get());
  tensor dx{layout};
  backward_input({}, dy.view(), x.view(), k,
                 {sum_dy.data(), sum_dy_xmu.data(), layout.shape.per_channel()},
                 nullptr, dx.view());
  return {dx.get(), weight_grad.get(), bias_grad.get()};
}

} // namespace

TEST_CASE("gradients are those of finite differences, for random cotangents") {
  tensor_shape shape{3, 4, 6};
  auto tolerance = tolerance::of("finite differences", dtype::float64);
  auto step = 1e-5;
  for (auto format : all_formats) {
    layer one{{dtype::float64, shape, format, 24, {}},
              random_values(shape, 50),
              random_channels(4, 51, 0.5, 2),
              random_channels(4, 52, -1, 1)};
    auto source = random_values(shape, 53, 1, 2);
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
    });
    for (std::size_t c = 0; c < 4; ++c) {
      CHECK(std::abs(slope(one.weight[c]) - got.weight[c]) < tolerance);
      CHECK(std::abs(slope(one.bias[c]) - got.bias[c]) < tolerance);
    }
  }
}
