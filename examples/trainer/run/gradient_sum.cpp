#include "trainer/run/gradient_sum.hpp"

#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>

namespace syncnorm::train {

namespace {

using parts = std::span<identified<gradient_part>>;

/// The first gradient that is not empty: the others must have its size.
const flat_array* model_of(parts messages) {
  for (const auto& x : messages)
    if (x.message.gradient.size() > 0)
      return &x.message.gradient;
  return nullptr;
}

void check(parts messages, const flat_array& expected) {
  for (const auto& [id, part] : messages)
    if (part.gradient.size() > 0
        && (part.gradient.f32.size() != expected.f32.size()
            || part.gradient.f64.size() != expected.f64.size()))
      throw error{
          errc::shape_mismatch,
          fmt::format("add_gradients: replica {}: expected {} float32 and {} "
                      "float64, got {} and {}",
                      id, expected.f32.size(), expected.f64.size(),
                      part.gradient.f32.size(), part.gradient.f64.size())};
}

template <class T>
std::vector<T> add(parts messages, std::size_t size, bool& finite) {
  // A block of sums stays in the cache while all replicas are added to it.
  constexpr std::size_t block = 1024;
  std::array<double, block> sums;
  std::vector<T> result(size);
  // 0 * x is 0 for every finite x, and NaN for the others.
  double witness = 0;
  for (std::size_t at = 0; at < size; at += block) {
    auto n = std::min(block, size - at);
    sums.fill(0);
    for (const auto& x : messages) {
      const auto& values = x.message.gradient.template get<T>();
      if (values.size() > 0)
        for (std::size_t i = 0; i < n; ++i)
          sums[i] += static_cast<double>(values[at + i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      result[at + i] = static_cast<T>(sums[i]);
      witness += 0 * static_cast<double>(result[at + i]);
    }
  }
  finite = finite && witness == 0;
  return result;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  return time.count();
}

} // namespace

std::vector<identified<gradient_sum>> add_gradients(parts messages) {
  auto start = std::chrono::steady_clock::now();
  gradient_sum sum;
  for (const auto& x : messages)
    sum.loss += x.message.loss;
  sum.finite = std::isfinite(sum.loss);
  if (const auto* model = model_of(messages)) {
    check(messages, *model);
    if (model->f64.size() > 0)
      sum.gradient =
          flat_array{add<double>(messages, model->size(), sum.finite)};
    else
      sum.gradient =
          flat_array{add<float>(messages, model->size(), sum.finite)};
  }
  sum.seconds = seconds_since(start);
  std::vector<identified<gradient_sum>> replies;
  for (const auto& x : messages)
    replies.push_back({x.identifier, sum});
  return replies;
}

} // namespace syncnorm::train
