#pragma once

// One layer, forward and backward, on two backends: they agree.

#include "tests/kernels/cuda_placements.hpp"

namespace syncnorm::testing {

/// A batch-norm layer with residual and ReLU, on one backend.
class layer {
public:
  layer(backend& ops, const placement& where, const host_tensor& x,
        const host_tensor& residual, const host_tensor& dy)
      : ops_{ops},
        layout_{where.layout},
        type_{statistics_type(where.layout.type)},
        channels_{type_, where.layout.shape.channels},
        x_{ops, x},
        residual_{ops, residual},
        dy_{ops, dy},
        y_{ops, host_tensor{where.layout, where.offset}},
        dx_{ops, host_tensor{where.layout, where.offset}},
        residual_grad_{ops, host_tensor{where.layout, where.offset}} {}

  void forward() {
    moments_view moments{0,          mean_.data(), inv_std_.data(),
                         channels(), type_,        ops_.where()};
    ops_.batch_moments(x_.view(), moments);
    ops_.finalize_moments(moments, {}, mean_.data(), inv_std_.data(), {});
    ops_.normalize(
        x_.view(), parameters(), y_.view(),
        {residual_.data(), true, static_cast<std::uint8_t*>(mask_.data())});
  }

  /// Uses a mask from the caller: near zero, the backends' own may differ.
  void backward(const std::vector<std::byte>& bits) {
    buffer mask{ops_, bits};
    const auto* data = static_cast<const std::uint8_t*>(mask.data());
    ops_.backward_reduce(dy_.view(), x_.view(), parameters(), data,
                         {sum_dy_.data(), sum_dy_xmu_.data(),
                          weight_grad_.data(), bias_grad_.data()});
    ops_.backward_input(
        dy_.view(), x_.view(), parameters(),
        {sum_dy_.data(), sum_dy_xmu_.data(), layout_.shape.per_channel()}, data,
        dx_.view(), residual_grad_.data());
    static_cast<void>(dx_.read());
  }

  [[nodiscard]] std::vector<host_tensor> tensors() {
    return {y_.read(), dx_.read(), residual_grad_.read()};
  }
  [[nodiscard]] std::vector<std::vector<double>> arrays() const {
    return {mean_.read(),       inv_std_.read(),     sum_dy_.read(),
            sum_dy_xmu_.read(), weight_grad_.read(), bias_grad_.read()};
  }
  [[nodiscard]] std::vector<std::byte> mask() const {
    auto bits = nothing_bits_;
    mask_.read(bits);
    return bits;
  }

private:
  [[nodiscard]] std::int64_t channels() const {
    return layout_.shape.channels;
  }
  [[nodiscard]] channel_parameters parameters() const {
    return {mean_.data(), inv_std_.data(), weight_.data(), bias_.data()};
  }

  backend& ops_;
  tensor_layout layout_;
  dtype type_;
  random_channels channels_;
  placed_tensor x_, residual_, dy_, y_, dx_, residual_grad_;
  std::vector<double> nothing_ = std::vector<double>(channels_.mean.size());
  std::vector<std::byte> nothing_bits_ =
      std::vector<std::byte>(mask_size(layout_));
  placed_array mean_{ops_, type_, nothing_};
  placed_array inv_std_{ops_, type_, nothing_};
  placed_array weight_{ops_, type_, channels_.weight};
  placed_array bias_{ops_, type_, channels_.bias};
  placed_array sum_dy_{ops_, type_, nothing_};
  placed_array sum_dy_xmu_{ops_, type_, nothing_};
  placed_array weight_grad_{ops_, type_, nothing_};
  placed_array bias_grad_{ops_, type_, nothing_};
  buffer mask_{ops_, nothing_bits_};
};

/// The input of a layer.
struct layer_data {
  explicit layer_data(const placement& where)
      : x{where.layout, where.offset},
        residual{where.layout, where.offset},
        dy{where.layout, where.offset} {
    x.fill_noise(21, 3, 1);
    residual.fill_noise(22, -2, 1);
    dy.fill_noise(23, -3, 1);
  }

  host_tensor x, residual, dy;
};

/// Tolerance for a layer's tensors, which are computed from values up to about
/// 10: that for another implementation.
inline double agreement(dtype type, double value) {
  return tolerance::of("libtorch: elements", type) * (std::abs(value) + 10);
}

inline void check_agreement(backend& a, backend& b, placement where) {
  layer_data data{where};
  layer on_a{a, where, data.x, data.residual, data.dy};
  auto label = where.text();
  where.layout.where = b.where();
  layer_data data_b{where};
  layer on_b{b, where, data_b.x, data_b.residual, data_b.dy};
  on_a.forward();
  on_b.forward();
  auto bits = on_a.mask();
  on_a.backward(bits);
  on_b.backward(bits);
  auto tensors_a = on_a.tensors();
  auto tensors_b = on_b.tensors();
  for (std::size_t i = 0; i < tensors_a.size(); ++i)
    data.x.for_each([&](auto n, auto c, auto s) {
      auto expected = tensors_a[i].get(n, c, s);
      check_near(tensors_b[i].get(n, c, s), expected,
                 agreement(where.layout.type, expected),
                 label + " tensor " + std::to_string(i));
    });
  auto arrays_a = on_a.arrays();
  auto arrays_b = on_b.arrays();
  // After mean and inv_std come sums, of `terms` values of about 10 each.
  auto terms = double(where.layout.shape.per_channel());
  auto relative = tolerance::of("libtorch: statistics", where.layout.type);
  for (std::size_t i = 0; i < arrays_a.size(); ++i)
    for (std::size_t c = 0; c < arrays_a[i].size(); ++c)
      check_near(arrays_b[i][c], arrays_a[i][c],
                 relative * (i < 2 ? 10 : 10 * terms),
                 label + " array " + std::to_string(i));
}

inline void check_agreement_everywhere(backend& a, backend& b) {
  for (auto shape : {tensor_shape{8, 64, 56 * 56},
                     {16, 4, 3136},
                     {64, 129, 49},
                     {256, 1024, 1},
                     {3, 31, 17}})
    for (auto type :
         {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16})
      for (auto format :
           {memory_format::channels_first, memory_format::channels_last})
        check_agreement(
            a, b,
            {{type, shape, format, shape.channels * shape.spatial, a.where()},
             0});
}

} // namespace syncnorm::testing
