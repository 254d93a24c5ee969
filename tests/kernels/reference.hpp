#pragma once

// Batch normalization by its definition, in extended precision and two passes,
// without regard to speed: the truth that kernels are compared with.

#include "syncnorm/moments.hpp"
#include "tests/kernels/tensor.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace syncnorm::test {

using real = long double;

struct channel_moments {
  std::int64_t count = 0;
  real mean = 0;
  real m2 = 0;

  [[nodiscard]] real deviation() const {
    return count == 0 ? 0 : std::sqrt(m2 / real(count));
  }
};

inline std::vector<channel_moments> reference_moments(const values& x) {
  std::vector<channel_moments> result(std::size_t(x.shape().channels));
  auto count = x.shape().per_channel();
  x.for_each([&](auto n, auto c, auto s) {
    result[std::size_t(c)].mean += real(x.at(n, c, s)) / real(count);
  });
  x.for_each([&](auto n, auto c, auto s) {
    auto& channel = result[std::size_t(c)];
    auto d = real(x.at(n, c, s)) - channel.mean;
    channel.m2 += d * d;
  });
  for (auto& channel : result)
    channel.count = count;
  return result;
}

/// Per channel parameters of normalization, each of C elements.
struct parameters {
  std::vector<double> mean;
  std::vector<double> inv_std;
  std::vector<double> weight;
  std::vector<double> bias;
};

/// What a result is compared with: its value, and the sum of the magnitudes of
/// its terms, which rounding errors are relative to.
struct expected {
  real value = 0;
  real scale = 0;
};

inline expected reference_normalize(const parameters& p, std::size_t c,
                                    double x, double residual) {
  auto scale = real(p.inv_std[c]) * real(p.weight[c]);
  auto d = real(x) - real(p.mean[c]);
  return {d * scale + real(p.bias[c]) + real(residual),
          std::abs(d * scale) + std::abs(real(p.bias[c]))
              + std::abs(real(residual))};
}

struct channel_sums {
  expected dy;
  expected dy_xmu;
};

inline std::vector<channel_sums>
reference_sums(const values& dy, const values& x, const parameters& p) {
  std::vector<channel_sums> result(std::size_t(x.shape().channels));
  dy.for_each([&](auto n, auto c, auto s) {
    auto& channel = result[std::size_t(c)];
    auto g = real(dy.at(n, c, s));
    auto product = g * (real(x.at(n, c, s)) - real(p.mean[std::size_t(c)]));
    channel.dy.value += g;
    channel.dy.scale += std::abs(g);
    channel.dy_xmu.value += product;
    channel.dy_xmu.scale += std::abs(product);
  });
  return result;
}

inline expected reference_input_gradient(const parameters& p, std::size_t c,
                                         double dy, double x, double sum_dy,
                                         double sum_dy_xmu,
                                         std::int64_t count) {
  auto inv_std = real(p.inv_std[c]);
  auto scale = real(p.weight[c]) * inv_std;
  auto mean_dy = real(sum_dy) / real(count);
  auto along = (real(x) - real(p.mean[c])) * inv_std * inv_std
               * real(sum_dy_xmu) / real(count);
  return {scale * (real(dy) - mean_dy - along),
          std::abs(scale)
              * (std::abs(real(dy)) + std::abs(mean_dy) + std::abs(along))};
}

/// Whether |got - expected| <= tolerance * scale + smallest. If both are 0, the
/// values must be equal.
inline bool near(double got, const expected& want, double tolerance,
                 double smallest = 0) {
  return std::abs(real(got) - want.value)
         <= real(tolerance) * want.scale + real(smallest);
}

} // namespace syncnorm::test
