#include "trainer/run/gradient_sum.hpp"

#include "syncnorm/error.hpp"
#include "syncnorm/merge_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace syncnorm::train {

namespace {

using parts = std::span<identified<gradient_part>>;
using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point start) {
  std::chrono::duration<double> time = clock::now() - start;
  return time.count();
}

/// Whether the replicas' gradients are in float32.
bool is_narrow(const gradient_part& x) {
  return x.narrow || x.gradient.f32.size() > 0;
}

/// The first one whose gradient is not empty: the others must be like it.
const gradient_part* model_of(parts messages) {
  for (const auto& x : messages)
    if (x.message.gradient.size() > 0)
      return &x.message;
  return nullptr;
}

void check(parts messages, const gradient_part& expected) {
  auto text = [](const gradient_part& x) {
    return fmt::format("{} float{}", x.gradient.size(), is_narrow(x) ? 32 : 64);
  };
  for (const auto& [id, part] : messages)
    if (part.gradient.size() > 0 && text(part) != text(expected))
      throw error{errc::shape_mismatch,
                  fmt::format("merge_gradients: replica {}: expected {}, got "
                              "{}",
                              id, text(expected), text(part))};
}

double add_losses(parts messages) {
  std::vector<identified<double>> losses;
  for (const auto& x : messages)
    losses.push_back({x.identifier, x.message.loss});
  return fold_tree(std::span{losses}, std::plus<>{});
}

std::vector<double> add(parts messages, std::size_t size) {
  std::vector<std::vector<double>> wide;
  wide.reserve(messages.size());
  std::vector<identified<std::span<const double>>> arrays;
  for (const auto& [id, part] : messages) {
    auto values = part.gradient.f64.view();
    if (part.gradient.f32.size() > 0)
      values =
          wide.emplace_back(part.gradient.f32.begin(), part.gradient.f32.end());
    arrays.push_back({id, values});
  }
  std::vector<double> sum(size);
  add_tree<double>(std::move(arrays), sum);
  return sum;
}

} // namespace

gradient_part merge_gradients(parts messages) {
  auto start = clock::now();
  gradient_part result;
  result.loss = add_losses(messages);
  if (const auto* model = model_of(messages)) {
    check(messages, *model);
    result.narrow = is_narrow(*model);
    result.gradient = flat_array{add(messages, model->gradient.size())};
  }
  for (const auto& x : messages)
    result.seconds = std::max(result.seconds, x.message.seconds);
  result.seconds += seconds_since(start);
  return result;
}

gradient_sum finish_gradients(const gradient_part& total) {
  auto start = clock::now();
  gradient_sum sum;
  sum.loss = total.loss;
  // 0 * x is 0 for every finite x, and NaN for the others.
  auto witness = 0 * total.loss;
  const auto& values = total.gradient.f64;
  if (total.narrow) {
    std::vector<float> rounded(values.size());
    for (std::size_t i = 0; i < rounded.size(); ++i) {
      rounded[i] = static_cast<float>(values[i]);
      witness += 0 * static_cast<double>(rounded[i]);
    }
    sum.gradient = flat_array{std::move(rounded)};
  } else {
    for (auto x : values)
      witness += 0 * x;
    sum.gradient.f64 = values;
  }
  sum.finite = witness == 0;
  sum.seconds = total.seconds + seconds_since(start);
  return sum;
}

} // namespace syncnorm::train
