#pragma once

// Checks of the reductions against their definition in float64, for any
// backend and any layout.

#include "tests/kernels/cuda_placements.hpp"

#include <optional>

namespace syncnorm::testing {

struct channel_moments {
  std::vector<double> mean;
  std::vector<double> m2;
};

/// Moments by definition, in two passes.
inline channel_moments moments_by_definition(const host_tensor& x) {
  auto channels = std::size_t(x.layout().shape.channels);
  auto count = static_cast<long double>(x.layout().shape.per_channel());
  std::vector<long double> sum(channels), squares(channels);
  x.for_each([&](auto n, auto c, auto s) { sum[c] += x.get(n, c, s); });
  x.for_each([&](auto n, auto c, auto s) {
    auto deviation = x.get(n, c, s) - sum[c] / count;
    squares[c] += deviation * deviation;
  });
  channel_moments result;
  for (std::size_t c = 0; c < channels; ++c) {
    result.mean.push_back(double(sum[c] / count));
    result.m2.push_back(double(squares[c]));
  }
  return result;
}

/// Runs `batch_moments` and returns what it wrote.
inline channel_moments run_moments(backend& ops, const host_tensor& x,
                                   dtype type) {
  auto channels = x.layout().shape.channels;
  std::vector<double> nothing(std::size_t(channels), NAN);
  placed_tensor there{ops, x};
  placed_array mean{ops, type, nothing};
  placed_array m2{ops, type, nothing};
  moments_view out{0, mean.data(), m2.data(), channels, type, ops.where()};
  ops.batch_moments(there.view(), out);
  CHECK(out.count == x.layout().shape.per_channel());
  return {mean.read(), m2.read()};
}

/// The moments of every channel are those of its values.
inline void check_moments(backend& ops, const placement& where, double mean,
                          double deviation, std::optional<dtype> type = {}) {
  host_tensor x{where.layout, where.offset};
  x.fill_noise(1, mean, deviation);
  auto result_type = type.value_or(statistics_type(where.layout.type));
  auto expected = moments_by_definition(x);
  auto found = run_moments(ops, x, result_type);
  auto mean_tolerance = tolerance::of("batch_moments: mean", where.layout.type);
  auto m2_tolerance = tolerance::of("batch_moments: m2", where.layout.type);
  auto count = double(where.layout.shape.per_channel());
  for (std::size_t c = 0; c < expected.mean.size(); ++c) {
    auto label = where.text() + " channel " + std::to_string(c);
    auto spread = std::sqrt(expected.m2[c] / count);
    check_near(found.mean[c], expected.mean[c],
               mean_tolerance * (std::abs(expected.mean[c]) + spread),
               label + " mean");
    check_near(found.m2[c], expected.m2[c], m2_tolerance * expected.m2[c],
               label + " m2");
  }
}

/// What `backward_reduce` is asked for besides the sums.
struct wanted_gradients {
  bool weight = false;
  bool bias = false;
};

/// `backward_reduce` gives the sums over each channel.
/// @param extra_stride  how much further apart the samples of dy are.
/// @param extra_offset  how many elements more are before dy.
inline void check_backward_reduce(backend& ops, const placement& where,
                                  bool masked, wanted_gradients wanted,
                                  std::int64_t extra_stride = 0,
                                  std::int64_t extra_offset = 0) {
  const auto& layout = where.layout;
  auto type = statistics_type(layout.type);
  random_channels channels{type, layout.shape.channels};
  host_tensor x{layout, where.offset};
  auto dy_layout = layout;
  dy_layout.sample_stride += extra_stride;
  host_tensor dy{dy_layout, where.offset + extra_offset};
  x.fill_noise(4, 3, 1);
  dy.fill_noise(5, -3, 1);
  placed_tensor x_there{ops, x};
  placed_tensor dy_there{ops, dy};
  placed_array mean{ops, type, channels.mean};
  placed_array inv_std{ops, type, channels.inv_std};
  std::vector<double> nothing(channels.mean.size(), NAN);
  placed_array sum_dy{ops, type, nothing};
  placed_array sum_dy_xmu{ops, type, nothing};
  placed_array weight_grad{ops, type, nothing};
  placed_array bias_grad{ops, type, nothing};
  auto bits = random_mask(layout);
  buffer mask{ops, bits};

  channel_parameters parameters;
  parameters.mean = mean.data();
  backward_sums out{sum_dy.data(), sum_dy_xmu.data()};
  if (wanted.weight) {
    parameters.inv_std = inv_std.data();
    out.weight_grad = weight_grad.data();
  }
  if (wanted.bias)
    out.bias_grad = bias_grad.data();
  ops.backward_reduce(
      dy_there.view(), x_there.view(), parameters,
      masked ? static_cast<const std::uint8_t*>(mask.data()) : nullptr, out);

  // Wider than float64, whose rounding would be the larger one.
  std::vector<long double> dy_sum(nothing.size()), xmu_sum(nothing.size());
  std::vector<double> dy_size(nothing.size()), xmu_size(nothing.size());
  x.for_each([&](auto n, auto c, auto s) {
    auto kept = !masked || bit_of(bits, x.flat(n, c, s));
    auto g = kept ? dy.get(n, c, s) : 0;
    auto product = g * (x.get(n, c, s) - channels.mean[c]);
    dy_sum[c] += g;
    xmu_sum[c] += product;
    dy_size[c] += std::abs(g);
    xmu_size[c] += std::abs(product);
  });
  auto unit = tolerance::of("backward_reduce", layout.type);
  auto found_dy = sum_dy.read();
  auto found_xmu = sum_dy_xmu.read();
  auto found_weight = weight_grad.read();
  auto found_bias = bias_grad.read();
  for (std::size_t c = 0; c < nothing.size(); ++c) {
    auto label = where.text() + " channel " + std::to_string(c);
    auto sum = double(dy_sum[c]), xmu = double(xmu_sum[c]);
    check_near(found_dy[c], sum, unit * dy_size[c], label + " sum_dy");
    check_near(found_xmu[c], xmu, unit * xmu_size[c], label + " sum_dy_xmu");
    if (wanted.bias)
      check_near(found_bias[c], sum, unit * dy_size[c], label + " bias_grad");
    if (wanted.weight)
      check_near(found_weight[c], xmu * channels.inv_std[c],
                 unit * xmu_size[c] * channels.inv_std[c],
                 label + " weight_grad");
  }
}

/// `backward_reduce` and `backward_input` treat elements of dy that the mask
/// excludes as 0: here all elements, each of which is `spoiler`.
inline void check_masked(backend& ops, const tensor_layout& layout,
                         double spoiler) {
  host_tensor dy{layout, 0};
  dy.for_each([&](auto n, auto c, auto s) { dy.set(n, c, s, spoiler); });
  host_tensor x{layout, 0};
  x.fill_noise(4, 3, 1);
  placed_tensor x_there{ops, x};
  placed_tensor dy_there{ops, dy};
  placed_tensor dx{ops, host_tensor{layout, 0}};
  placed_tensor residual_grad{ops, host_tensor{layout, 0}};
  auto type = statistics_type(layout.type);
  random_channels channels{type, layout.shape.channels};
  placed_array mean{ops, type, channels.mean};
  placed_array inv_std{ops, type, channels.inv_std};
  std::vector<double> nothing(channels.mean.size(), NAN);
  placed_array sum_dy{ops, type, nothing};
  placed_array sum_dy_xmu{ops, type, nothing};
  std::vector<std::byte> bits(mask_size(layout));
  buffer mask{ops, bits};
  const auto* data = static_cast<const std::uint8_t*>(mask.data());
  channel_parameters parameters{mean.data(), inv_std.data(), nullptr, nullptr};
  ops.backward_reduce(dy_there.view(), x_there.view(), parameters, data,
                      {sum_dy.data(), sum_dy_xmu.data()});
  ops.backward_input(
      dy_there.view(), x_there.view(), parameters,
      {sum_dy.data(), sum_dy_xmu.data(), layout.shape.per_channel()}, data,
      dx.view(), residual_grad.data());
  const std::vector<double> zeros(nothing.size());
  CHECK(sum_dy.read() == zeros);
  CHECK(sum_dy_xmu.read() == zeros);
  auto found = dx.read();
  auto passed = residual_grad.read();
  int other = 0;
  x.for_each([&](auto n, auto c, auto s) {
    other += found.get(n, c, s) != 0 || passed.get(n, c, s) != 0 ? 1 : 0;
  });
  CHECK(other == 0);
}

} // namespace syncnorm::testing
