#pragma once

// Checks of one operation at a time against its definition in float64, for any
// backend and any layout.

#include "tests/kernels/cuda_backend.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>

namespace syncnorm::testing {

/// A tensor's layout and how it lies in memory.
struct placement {
  tensor_layout layout;
  /// Elements before the first one.
  std::int64_t offset = 0;

  [[nodiscard]] std::string text() const {
    const auto& shape = layout.shape;
    return to_string(layout.type) + " " + to_string(layout.format) + " N "
           + std::to_string(shape.samples) + " C "
           + std::to_string(shape.channels) + " S "
           + std::to_string(shape.spatial) + " stride "
           + std::to_string(layout.sample_stride) + " offset "
           + std::to_string(offset);
  }
};

/// Calls `f(placement)` for a shape with each dtype and format: dense, dense
/// behind one element (no vector is aligned), with gaps that keep vectors
/// aligned, and with gaps that do not.
template <class F>
void for_each_placement(const tensor_shape& shape, device where, const F& f) {
  auto sample = shape.channels * shape.spatial;
  auto wide = (sample + 31) / 16 * 16;
  for (auto type : {dtype::float32, dtype::float64, dtype::float16,
                    dtype::bfloat16})
    for (auto format :
         {memory_format::channels_first, memory_format::channels_last})
      for (auto [stride, offset] : {std::pair{sample, std::int64_t{0}},
                                    {sample, std::int64_t{1}},
                                    {wide, std::int64_t{0}},
                                    {sample + 3, std::int64_t{0}}})
        f(placement{{type, shape, format, stride, where}, offset});
}

/// Sizes around the edges of vectors (2 to 8 elements), warps, tiles (32
/// vectors), blocks (256 threads) and runs; and primes.
inline std::vector<tensor_shape> edge_shapes() {
  return {{1, 1, 1},    {1, 1, 7},    {3, 1, 8},     {5, 1, 33},
          {1, 2, 1},    {2, 3, 1},    {4, 3, 4},     {3, 4, 16},
          {2, 5, 9},    {7, 7, 7},    {2, 8, 15},    {3, 16, 17},
          {64, 31, 2},  {65, 32, 3},  {5, 33, 49},   {2, 100, 64},
          {257, 129, 1}, {33, 1021, 1}, {3, 257, 5}, {2, 2048, 4}};
}

/// Sizes that are cut into several runs, with few channels and many.
inline std::vector<tensor_shape> split_shapes() {
  return {{1, 1, 262147}, {2, 3, 40000}, {16, 4, 4096}, {9, 64, 1024},
          {3, 6, 12544}};
}

/// Half a unit in the last place of what is calculated in.
inline double unit_roundoff(dtype type) {
  return type == dtype::float64 ? 0x1p-53 : 0x1p-24;
}

/// How far the nearest number of `type` may be from `value`.
inline double rounding(dtype type, double value) {
  switch (type) {
  case dtype::float32:
    return std::abs(value) * 0x1p-24 + 0x1p-149;
  case dtype::float64:
    return std::abs(value) * 0x1p-53;
  case dtype::float16:
    return std::abs(value) * 0x1p-11 + 0x1p-25;
  default:
    return std::abs(value) * 0x1p-8 + 0x1p-133;
  }
}

/// Fails, and says where, unless |found - expected| <= tolerance.
inline void check_near(double found, double expected, double tolerance,
                       const std::string& where) {
  if (!(std::abs(found - expected) <= tolerance))
    FAIL_CHECK(where << ": found " << found << ", expected " << expected
                     << ", tolerance " << tolerance);
}

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
  auto unit = unit_roundoff(result_type);
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

/// Random parameters of C channels, as the statistics type holds them.
struct random_channels {
  dtype type;
  std::vector<double> mean, inv_std, weight, bias;

  random_channels(dtype of, std::int64_t channels)
      : type{of} {
    for (std::int64_t c = 0; c < channels; ++c) {
      mean.push_back(value(11, c, 3 + double(c % 7), 0.5));
      inv_std.push_back(value(12, c, 1, 0.3));
      weight.push_back(value(13, c, 0.2, 1));
      bias.push_back(value(14, c, 0, 1));
    }
  }

private:
  [[nodiscard]] double value(std::uint64_t seed, std::int64_t c, double center,
                             double deviation) const {
    double exact = center + deviation * noise(seed, std::uint64_t(c));
    std::byte bytes[8];
    store_element(type, bytes, exact);
    return load_element(type, bytes);
  }
};

/// What is switched on in a call of an elementwise operation.
struct pass_options {
  bool affine = true;
  bool residual = false;
  bool relu = false;
  bool mask = false;
  bool in_place = false;
  /// From running statistics.
  bool eval = false;
  eps_mode mode = eps_mode::plus;
};

inline bool bit_of(const std::vector<std::byte>& mask, std::int64_t i) {
  return (std::to_integer<unsigned>(mask[std::size_t(i / 8)]) >> (i % 8) & 1u)
         != 0;
}

inline std::size_t mask_size(const tensor_layout& layout) {
  auto elements = layout.shape.per_channel() * layout.shape.channels;
  return std::size_t((elements + 63) / 64 * 8);
}

/// 1 / sqrt(var + eps) or 1 / sqrt(max(var, eps)).
inline double inverse_of(double var, double eps, eps_mode mode) {
  return 1
         / std::sqrt(mode == eps_mode::plus ? var + eps : std::max(var, eps));
}

/// `normalize` and `normalize_eval` give the formula, element by element, and
/// write nothing else.
inline void check_normalize(backend& ops, const placement& where,
                            const pass_options& options) {
  constexpr double eps = 0.6;
  const auto& layout = where.layout;
  auto type = statistics_type(layout.type);
  random_channels channels{type, layout.shape.channels};
  host_tensor x{layout, where.offset};
  host_tensor residual{layout, where.offset};
  x.fill_noise(2, 3, 1);
  residual.fill_noise(3, -2, 1);
  placed_tensor x_there{ops, x};
  placed_tensor residual_there{ops, residual};
  placed_tensor y_there{ops, host_tensor{layout, where.offset}};
  placed_array mean{ops, type, channels.mean};
  placed_array spread{ops, type, channels.inv_std};
  placed_array weight{ops, type, channels.weight};
  placed_array bias{ops, type, channels.bias};
  std::vector<std::byte> bits(mask_size(layout), std::byte{0xff});
  buffer mask{ops, bits};

  channel_parameters parameters;
  if (options.affine) {
    parameters.weight = weight.data();
    parameters.bias = bias.data();
  }
  fused_tail tail;
  tail.residual = options.residual ? residual_there.data() : nullptr;
  tail.relu = options.relu;
  tail.mask =
      options.mask ? static_cast<std::uint8_t*>(mask.data()) : nullptr;
  auto& target = options.in_place ? x_there : y_there;
  if (options.eval) {
    ops.normalize_eval(x_there.view(), {mean.data(), spread.data()}, eps,
                       options.mode, parameters, target.view(), tail);
  } else {
    parameters.mean = mean.data();
    parameters.inv_std = spread.data();
    ops.normalize(x_there.view(), parameters, target.view(), tail);
  }

  auto y = target.read();
  CHECK(y.gaps_are(0xff));
  mask.read(bits);
  auto unit = unit_roundoff(layout.type);
  x.for_each([&](auto n, auto c, auto s) {
    auto inverse = options.eval
                       ? inverse_of(channels.inv_std[c], eps, options.mode)
                       : channels.inv_std[c];
    auto scale = inverse * (options.affine ? channels.weight[c] : 1);
    auto scaled = (x.get(n, c, s) - channels.mean[c]) * scale;
    auto offset = options.affine ? channels.bias[c] : 0;
    auto added = options.residual ? residual.get(n, c, s) : 0;
    auto value = scaled + offset + added;
    // Each step rounds what it has so far; the scale has five of its own.
    auto tolerance = unit
                     * (8 * std::abs(scaled) + 2 * std::abs(offset)
                        + 2 * std::abs(added));
    auto label = where.text() + " element " + std::to_string(y.flat(n, c, s));
    if (options.mask && std::abs(value) > tolerance)
      if (bit_of(bits, y.flat(n, c, s)) != (value > 0))
        FAIL_CHECK(label << ": the mask bit is wrong for " << value);
    auto expected = options.relu ? std::max(value, 0.0) : value;
    check_near(y.get(n, c, s), expected,
               tolerance + rounding(layout.type, std::abs(value) + tolerance),
               label);
  });
}

/// A mask of random bits.
inline std::vector<std::byte> random_mask(const tensor_layout& layout) {
  std::vector<std::byte> bits(mask_size(layout));
  for (std::size_t i = 0; i < bits.size(); ++i)
    bits[i] = std::byte(unsigned(128 + 73 * noise(9, i)) & 0xffu);
  return bits;
}

/// `backward_reduce` gives the sums over each channel.
inline void check_backward_reduce(backend& ops, const placement& where,
                                  bool masked, bool gradients) {
  const auto& layout = where.layout;
  auto type = statistics_type(layout.type);
  random_channels channels{type, layout.shape.channels};
  host_tensor x{layout, where.offset};
  host_tensor dy{layout, where.offset};
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

/// `backward_input` and `backward_input_eval` give the formula, element by
/// element, and write nothing else. In place: dx over dy.
inline void check_backward_input(backend& ops, const placement& where,
                                 const pass_options& options) {
  constexpr double eps = 0.6;
  constexpr std::int64_t count = 37;
  const auto& layout = where.layout;
  auto type = statistics_type(layout.type);
  random_channels channels{type, layout.shape.channels};
  host_tensor x{layout, where.offset};
  host_tensor dy{layout, where.offset};
  x.fill_noise(6, 3, 1);
  dy.fill_noise(7, -3, 1);
  placed_tensor x_there{ops, x};
  placed_tensor dy_there{ops, dy};
  placed_tensor dx_there{ops, host_tensor{layout, where.offset}};
  placed_tensor residual_there{ops, host_tensor{layout, where.offset}};
  placed_array mean{ops, type, channels.mean};
  placed_array spread{ops, type, channels.inv_std};
  placed_array weight{ops, type, channels.weight};
  // Any numbers serve as sums.
  placed_array sum_dy{ops, type, channels.bias};
  placed_array sum_dy_xmu{ops, type, channels.weight};
  auto bits = random_mask(layout);
  buffer mask_there{ops, bits};

  const auto* mask =
      options.mask ? static_cast<const std::uint8_t*>(mask_there.data())
                   : nullptr;
  auto* residual_grad = options.residual ? residual_there.data() : nullptr;
  auto& target = options.in_place ? dy_there : dx_there;
  channel_parameters parameters;
  parameters.weight = options.affine ? weight.data() : nullptr;
  if (options.eval) {
    ops.backward_input_eval(dy_there.view(), {mean.data(), spread.data()}, eps,
                            options.mode, parameters, mask, target.view(),
                            residual_grad);
  } else {
    parameters.mean = mean.data();
    parameters.inv_std = spread.data();
    ops.backward_input(dy_there.view(), x_there.view(), parameters,
                       {sum_dy.data(), sum_dy_xmu.data(), count}, mask,
                       target.view(), residual_grad);
  }

  auto dx = target.read();
  auto residual = residual_there.read();
  CHECK(dx.gaps_are(0xff));
  CHECK(residual.gaps_are(0xff));
  auto unit = unit_roundoff(layout.type);
  x.for_each([&](auto n, auto c, auto s) {
    auto label = where.text() + " element " + std::to_string(x.flat(n, c, s));
    auto kept = !options.mask || bit_of(bits, x.flat(n, c, s));
    auto g = kept ? dy.get(n, c, s) : 0;
    auto inverse = options.eval
                       ? inverse_of(channels.inv_std[c], eps, options.mode)
                       : channels.inv_std[c];
    auto scale = inverse * (options.affine ? channels.weight[c] : 1);
    auto mean_dy = channels.bias[c] / count;
    auto projected = (x.get(n, c, s) - channels.mean[c]) * inverse * inverse
                     * channels.weight[c] / count;
    if (options.eval)
      mean_dy = projected = 0;
    auto expected = (g - mean_dy - projected) * scale;
    // Each step rounds what it has so far; the constants have up to six.
    auto tolerance = 10 * unit * std::abs(scale)
                     * (std::abs(g) + std::abs(mean_dy) + std::abs(projected));
    check_near(dx.get(n, c, s), expected,
               tolerance
                   + rounding(layout.type, std::abs(expected) + tolerance),
               label);
    if (options.residual && residual.get(n, c, s) != g)
      FAIL_CHECK(label << ": residual_grad is not the masked dy");
  });
}

} // namespace syncnorm::testing
