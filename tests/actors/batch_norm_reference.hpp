#pragma once

#include "syncnorm/batch_norm_messages.hpp"
#include "syncnorm/shared_tensor.hpp"
#include "syncnorm/tensor_view.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

// An independent truth for the tests: batch normalization of a whole batch in
// float64, two passes, straight from its definition; and tensors of any type.

namespace syncnorm::test {

// -- elements -----------------------------------------------------------------

/// Rounds to the nearest value with `bits` of significand (ties to even), for
/// values in the normal range of float16 and bfloat16.
inline float round_to_bits(float x, int bits) {
  int exponent = 0;
  auto mantissa = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)),
                    exponent - bits);
}

/// The float16 that holds `x`, which must be one in the normal range; zero for
/// smaller values: test data need no subnormals.
inline std::uint16_t to_half_bits(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, 4);
  auto sign = (bits >> 16) & 0x8000U;
  if (std::abs(x) < 0x1p-14F)
    return static_cast<std::uint16_t>(sign);
  auto exponent = ((bits >> 23) & 0xffU) - 112;
  return static_cast<std::uint16_t>(sign | exponent << 10
                                    | ((bits >> 13) & 0x3ffU));
}

inline float from_half_bits(std::uint16_t h) {
  auto sign = (h & 0x8000U) != 0 ? -1.0F : 1.0F;
  auto exponent = (h >> 10) & 0x1f;
  auto fraction = static_cast<float>(h & 0x3ff);
  return exponent == 0 ? sign * std::ldexp(fraction, -24)
                       : sign * std::ldexp(1024 + fraction, exponent - 25);
}

/// A tensor with its own memory.
struct tensor {
  tensor_layout layout;
  std::vector<std::byte> bytes;

  tensor() = default;

  explicit tensor(const tensor_layout& x)
      : layout{x},
        bytes(static_cast<std::size_t>(x.shape.samples * x.sample_stride)
              * size_of(x.type)) {}

  [[nodiscard]] tensor_view view() {
    return {bytes.data(), layout};
  }

  /// Position of element (n, c, s).
  [[nodiscard]] std::size_t at(std::int64_t n, std::int64_t c,
                               std::int64_t s) const {
    auto inner = layout.format == memory_format::channels_first
                     ? c * layout.shape.spatial + s
                     : s * layout.shape.channels + c;
    return static_cast<std::size_t>(n * layout.sample_stride + inner);
  }

  [[nodiscard]] double get(std::size_t i) const {
    switch (layout.type) {
    case dtype::float64:
      return read<double>(i);
    case dtype::float32:
      return read<float>(i);
    case dtype::float16:
      return from_half_bits(read<std::uint16_t>(i));
    default:
      return widen(read<std::uint16_t>(i));
    }
  }

  /// Rounds `x` to this type first.
  void set(std::size_t i, double x) {
    auto single = static_cast<float>(x);
    switch (layout.type) {
    case dtype::float64:
      return write(i, x);
    case dtype::float32:
      return write(i, single);
    case dtype::float16:
      return write(i, to_half_bits(round_to_bits(single, 11)));
    default:
      return write(i, narrow(round_to_bits(single, 8)));
    }
  }

private:
  template <class T>
  [[nodiscard]] T read(std::size_t i) const {
    T x;
    std::memcpy(&x, bytes.data() + i * sizeof(T), sizeof(T));
    return x;
  }

  template <class T>
  void write(std::size_t i, T x) {
    std::memcpy(bytes.data() + i * sizeof(T), &x, sizeof(T));
  }

  static float widen(std::uint16_t b) {
    auto bits = static_cast<std::uint32_t>(b) << 16;
    float x = 0;
    std::memcpy(&x, &bits, 4);
    return x;
  }

  static std::uint16_t narrow(float x) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &x, 4);
    return static_cast<std::uint16_t>(bits >> 16);
  }
};

/// A copy of the tensor for a message; the test keeps its own.
inline shared_tensor share(const tensor& x) {
  auto copy = std::make_shared<tensor>(x);
  return {copy->view(), copy};
}

/// A copy of a message's tensor, for inspection.
inline tensor fetch(const shared_tensor& x) {
  tensor result{x.view().layout()};
  std::copy_n(static_cast<const std::byte*>(x.view().data()),
              result.bytes.size(), result.bytes.begin());
  return result;
}

/// Fills `x` with normal values of the given mean and deviation.
inline void fill(tensor& x, std::mt19937& random, double mean = 0,
                 double deviation = 1) {
  std::normal_distribution<double> values{mean, deviation};
  auto [samples, channels, spatial] = x.layout.shape;
  for (std::int64_t n = 0; n < samples; ++n)
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t s = 0; s < spatial; ++s)
        x.set(x.at(n, c, s), values(random));
}

// -- the truth ----------------------------------------------------------------

/// What one device computes for the whole batch.
struct reference {
  double eps = 1e-5;
  eps_mode mode = eps_mode::plus;
  std::vector<double> weight{};
  std::vector<double> bias{};

  std::int64_t count = 0;
  std::vector<double> mean{};
  std::vector<double> var{};
  std::vector<double> inv_std{};
  std::vector<double> sum_dy{};
  std::vector<double> sum_dy_xmu{};

  /// Calls `f(c, value)` for each element of all `parts`.
  template <class F>
  static void for_each(const std::vector<tensor>& parts, F f) {
    for (std::size_t r = 0; r < parts.size(); ++r) {
      auto [samples, channels, spatial] = parts[r].layout.shape;
      for (std::int64_t n = 0; n < samples; ++n)
        for (std::int64_t c = 0; c < channels; ++c)
          for (std::int64_t s = 0; s < spatial; ++s)
            f(static_cast<std::size_t>(c), r, parts[r].at(n, c, s));
    }
  }

  void forward(const std::vector<tensor>& xs) {
    auto channels = weight.size();
    mean.assign(channels, 0);
    var.assign(channels, 0);
    inv_std.assign(channels, 0);
    count = 0;
    for (const auto& x : xs)
      count += x.layout.shape.per_channel();
    auto n = static_cast<double>(count);
    for_each(xs, [&](auto c, auto r, auto i) { mean[c] += xs[r].get(i) / n; });
    for_each(xs, [&](auto c, auto r, auto i) {
      auto d = xs[r].get(i) - mean[c];
      var[c] += d * d / n;
    });
    for (std::size_t c = 0; c < channels; ++c)
      inv_std[c] = 1
                   / std::sqrt(mode == eps_mode::plus ? var[c] + eps
                                                      : std::max(var[c], eps));
  }

  [[nodiscard]] double y(std::size_t c, double x) const {
    return (x - mean[c]) * inv_std[c] * weight[c] + bias[c];
  }

  void backward(const std::vector<tensor>& xs, const std::vector<tensor>& dys) {
    sum_dy.assign(weight.size(), 0);
    sum_dy_xmu.assign(weight.size(), 0);
    for_each(xs, [&](auto c, auto r, auto i) {
      auto dy = dys[r].get(i);
      sum_dy[c] += dy;
      sum_dy_xmu[c] += dy * (xs[r].get(i) - mean[c]);
    });
  }

  [[nodiscard]] double dx(std::size_t c, double x, double dy) const {
    auto n = static_cast<double>(count);
    auto clamped = mode == eps_mode::clamp && var[c] < eps;
    auto slope = clamped ? 0 : sum_dy_xmu[c] / n;
    return weight[c] * inv_std[c]
           * (dy - sum_dy[c] / n
              - (x - mean[c]) * inv_std[c] * inv_std[c] * slope);
  }
};

} // namespace syncnorm::test
