#pragma once

// Checks of the reductions against their definition in float64, for any
// backend and any layout.

#include "tests/kernels/cuda_placements.hpp"

#include <optional>

namespace syncnorm::testing {

struct channel_moments {
  std::vector<double> mean;
  std::vector<double> m2;
  /// Largest distance of a value from the channel's first.
  std::vector<double> range;
};

inline channel_moments moments_in_float64(const host_tensor& x) {
  auto channels = std::size_t(x.layout().shape.channels);
  auto count = double(x.layout().shape.per_channel());
  channel_moments result{std::vector<double>(channels),
                         std::vector<double>(channels),
                         std::vector<double>(channels)};
  x.for_each([&](auto n, auto c, auto s) {
    result.mean[c] += x.get(n, c, s) / count;
    auto distance = std::abs(x.get(n, c, s) - x.get(0, c, 0));
    result.range[c] = std::max(result.range[c], distance);
  });
  x.for_each([&](auto n, auto c, auto s) {
    auto deviation = x.get(n, c, s) - result.mean[c];
    result.m2[c] += deviation * deviation;
  });
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
  return {mean.read(), m2.read(), {}};
}

/// The moments of every channel are those of its values.
inline void check_moments(backend& ops, const placement& where, double mean,
                          double deviation, std::optional<dtype> type = {}) {
  host_tensor x{where.layout, where.offset};
  x.fill_noise(1, mean, deviation);
  auto result_type = type.value_or(statistics_type(where.layout.type));
  auto expected = moments_in_float64(x);
  auto found = run_moments(ops, x, result_type);
  // Per value: its difference from the first, a sum of up to 32, and a merge
  // for each such group of a thread (at most 16 here), each level of a block's
  // tree (8) and of the second pass (8 and 3 in order): below 80 roundings of
  // numbers up to the range, and one of the mean when the first is added.
  // The float64 truth has count roundings of its own.
  // Who asks for float64 gets the type; it may be calculated in float32.
  auto unit = unit_roundoff(where.layout.type);
  auto truth = 0x1p-53 * double(x.layout().shape.per_channel());
  for (std::size_t c = 0; c < expected.mean.size(); ++c) {
    auto label = where.text() + " channel " + std::to_string(c);
    check_near(found.mean[c], expected.mean[c],
               80 * unit * expected.range[c]
                   + (2 * unit + truth) * std::abs(expected.mean[c]),
               label + " mean");
    check_near(found.m2[c], expected.m2[c],
               (200 * unit + truth) * expected.m2[c]
                   + 1e-3 * unit * expected.range[c] * expected.range[c],
               label + " m2");
  }
}

/// `backward_reduce` gives the sums over each channel.
/// @param extra_stride  how much further apart the samples of dy stand.
inline void check_backward_reduce(backend& ops, const placement& where,
                                  bool masked, bool gradients,
                                  std::int64_t extra_stride = 0) {
  const auto& layout = where.layout;
  auto type = statistics_type(layout.type);
  random_channels channels{type, layout.shape.channels};
  host_tensor x{layout, where.offset};
  auto dy_layout = layout;
  dy_layout.sample_stride += extra_stride;
  host_tensor dy{dy_layout, where.offset};
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
  if (gradients) {
    parameters.inv_std = inv_std.data();
    out.weight_grad = weight_grad.data();
    out.bias_grad = bias_grad.data();
  }
  ops.backward_reduce(
      dy_there.view(), x_there.view(), parameters,
      masked ? static_cast<const std::uint8_t*>(mask.data()) : nullptr, out);

  std::vector<double> dy_sum(nothing.size()), xmu_sum(nothing.size());
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
  // Each term passes through at most 32 additions in a group, 16 of groups
  // and 20 of partial results, two roundings of its own, and the gradient one.
  auto unit = 80 * unit_roundoff(layout.type);
  auto found_dy = sum_dy.read();
  auto found_xmu = sum_dy_xmu.read();
  auto found_weight = weight_grad.read();
  auto found_bias = bias_grad.read();
  for (std::size_t c = 0; c < nothing.size(); ++c) {
    auto label = where.text() + " channel " + std::to_string(c);
    check_near(found_dy[c], dy_sum[c], unit * dy_size[c], label + " sum_dy");
    check_near(found_xmu[c], xmu_sum[c], unit * xmu_size[c],
               label + " sum_dy_xmu");
    if (!gradients)
      continue;
    check_near(found_bias[c], dy_sum[c], unit * dy_size[c],
               label + " bias_grad");
    check_near(found_weight[c], xmu_sum[c] * channels.inv_std[c],
               unit * xmu_size[c] * channels.inv_std[c],
               label + " weight_grad");
  }
}

} // namespace syncnorm::testing
