#pragma once

// Checks of the elementwise operations against their definition in float64,
// for any backend and any layout.

#include "tests/kernels/cuda_placements.hpp"

namespace syncnorm::testing {

/// The options of a call of an elementwise operation.
struct pass_options {
  bool affine = true;
  bool residual = false;
  bool relu = false;
  bool mask = false;
  bool in_place = false;
  /// The other tensors' samples are further apart than those of x or dy.
  bool spread_out = false;
  /// Uses running statistics.
  bool eval = false;
  eps_mode mode = eps_mode::plus;
};

/// The layout of the outputs and of the residual.
inline tensor_layout other_layout(const tensor_layout& layout,
                                  const pass_options& options) {
  auto result = layout;
  if (options.spread_out)
    result.sample_stride += 16;
  return result;
}

/// 1 / sqrt(var + eps) or 1 / sqrt(max(var, eps)).
inline double inverse_of(double var, double eps, eps_mode mode) {
  return 1 / std::sqrt(mode == eps_mode::plus ? var + eps : std::max(var, eps));
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
  auto other = other_layout(layout, options);
  host_tensor residual{other, where.offset};
  x.fill_noise(2, 3, 1);
  residual.fill_noise(3, -2, 1);
  placed_tensor x_there{ops, x};
  placed_tensor residual_there{ops, residual};
  placed_tensor y_there{ops, host_tensor{other, where.offset}};
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
  tail.mask = options.mask ? static_cast<std::uint8_t*>(mask.data()) : nullptr;
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
  auto unit = tolerance::of("normalize", layout.type);
  x.for_each([&](auto n, auto c, auto s) {
    auto inverse = options.eval
                       ? inverse_of(channels.inv_std[c], eps, options.mode)
                       : channels.inv_std[c];
    auto scale = inverse * (options.affine ? channels.weight[c] : 1);
    auto scaled = (x.get(n, c, s) - channels.mean[c]) * scale;
    auto offset = options.affine ? channels.bias[c] : 0;
    auto added = options.residual ? residual.get(n, c, s) : 0;
    auto value = scaled + offset + added;
    auto allowed =
        unit * (std::abs(scaled) + std::abs(offset) + std::abs(added))
        + tolerance::smallest(layout.type);
    auto label = where.text() + " element " + std::to_string(y.flat(n, c, s));
    if (options.mask && std::abs(value) > allowed)
      if (bit_of(bits, y.flat(n, c, s)) != (value > 0))
        FAIL_CHECK(label << ": the mask bit is wrong for " << value);
    auto expected = options.relu ? std::max(value, 0.0) : value;
    check_near(y.get(n, c, s), expected, allowed, label);
  });
}

/// `backward_input` and `backward_input_eval` give the formula, element by
/// element, and write nothing else. In place: dx over dy.
inline void check_backward_input(backend& ops, const placement& where,
                                 const pass_options& options) {
  constexpr double eps = 0.6;
  const auto& layout = where.layout;
  // As if another replica had 37 elements.
  auto count = layout.shape.per_channel() + 37;
  auto type = statistics_type(layout.type);
  random_channels channels{type, layout.shape.channels};
  host_tensor x{layout, where.offset};
  host_tensor dy{layout, where.offset};
  x.fill_noise(6, 3, 1);
  dy.fill_noise(7, -3, 1);
  placed_tensor x_there{ops, x};
  placed_tensor dy_there{ops, dy};
  auto other = other_layout(layout, options);
  placed_tensor dx_there{ops, host_tensor{other, where.offset}};
  placed_tensor residual_there{ops, host_tensor{other, where.offset}};
  placed_array mean{ops, type, channels.mean};
  placed_array spread{ops, type, channels.inv_std};
  placed_array weight{ops, type, channels.weight};
  // Any numbers serve as sums.
  placed_array sum_dy{ops, type, channels.bias};
  placed_array sum_dy_xmu{ops, type, channels.weight};
  auto bits = random_mask(layout);
  buffer mask_there{ops, bits};

  const auto* mask = options.mask
                         ? static_cast<const std::uint8_t*>(mask_there.data())
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
  auto unit = tolerance::of("backward_input", layout.type);
  x.for_each([&](auto n, auto c, auto s) {
    auto label = where.text() + " element " + std::to_string(x.flat(n, c, s));
    auto kept = !options.mask || bit_of(bits, x.flat(n, c, s));
    auto g = kept ? dy.get(n, c, s) : 0;
    auto inverse = options.eval
                       ? inverse_of(channels.inv_std[c], eps, options.mode)
                       : channels.inv_std[c];
    auto scale = inverse * (options.affine ? channels.weight[c] : 1);
    auto mean_dy = channels.bias[c] / double(count);
    auto projected = (x.get(n, c, s) - channels.mean[c]) * inverse * inverse
                     * channels.weight[c] / double(count);
    if (options.eval)
      mean_dy = projected = 0;
    auto expected = (g - mean_dy - projected) * scale;
    auto allowed = unit * std::abs(scale)
                       * (std::abs(g) + std::abs(mean_dy) + std::abs(projected))
                   + tolerance::smallest(layout.type);
    check_near(dx.get(n, c, s), expected, allowed, label);
    if (options.residual && residual.get(n, c, s) != g)
      FAIL_CHECK(label << ": residual_grad is not the masked dy");
  });
}

} // namespace syncnorm::testing
