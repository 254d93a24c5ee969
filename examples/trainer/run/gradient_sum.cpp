#include "trainer/run/gradient_sum.hpp"

#include "syncnorm/error.hpp"
#include "syncnorm/merge_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <span>
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

/// The first part whose gradient is not empty: the others must be like it.
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
  for (const auto& [id, part] : messages) {
    const auto& [f32, f64] = part.gradient;
    if (f32.size() > 0 && f64.size() > 0)
      throw error{errc::shape_mismatch,
                  fmt::format("merge_gradients: replica {}: expected float32 "
                              "or float64, got both",
                              id)};
    if (part.gradient.size() > 0 && text(part) != text(expected))
      throw error{errc::shape_mismatch,
                  fmt::format("merge_gradients: replica {}: expected {}, got "
                              "{}",
                              id, text(expected), text(part))};
  }
}

double add_losses(parts messages) {
  std::vector<identified<double>> losses;
  for (const auto& x : messages)
    losses.push_back({x.identifier, x.message.loss});
  return fold_tree(std::span{losses}, std::plus<>{});
}

/// The elements of one part's gradient from `at` on, in float64: in place, or
/// copied to `wide`.
std::span<const double> widen(const gradient_part& part, std::size_t at,
                              std::span<double> wide) {
  if (part.gradient.f32.size() == 0)
    return part.gradient.f64.view().subspan(at, wide.size());
  auto narrow = part.gradient.f32.view().subspan(at, wide.size());
  std::ranges::copy(narrow, wide.begin());
  return wide;
}

using narrow_arrays = std::vector<identified<std::span<const float>>>;

/// The gradients that are not empty, if all of them are in float32.
std::optional<narrow_arrays> narrow_only(parts messages) {
  narrow_arrays result;
  for (const auto& [id, part] : messages) {
    if (part.gradient.f64.size() > 0)
      return std::nullopt;
    if (part.gradient.f32.size() > 0)
      result.push_back({id, part.gradient.f32.view()});
  }
  return result;
}

/// Adds gradients in float64, or in both types, block by block, so that widened
/// values stay in the nearer caches: all replicas wait for this.
void add_wide(parts messages, std::span<double> sum) {
  constexpr std::size_t block = 1024;
  std::vector<double> wide(messages.size() * block);
  for (std::size_t at = 0; at < sum.size(); at += block) {
    auto n = std::min(block, sum.size() - at);
    std::vector<identified<std::span<const double>>> arrays;
    for (std::size_t i = 0; i < messages.size(); ++i)
      if (const auto& [id, part] = messages[i]; part.gradient.size() > 0)
        arrays.push_back(
            {id, widen(part, at, std::span{wide}.subspan(i * block, n))});
    add_tree(std::move(arrays), sum.subspan(at, n));
  }
}

std::vector<double> add(parts messages, std::size_t size) {
  std::vector<double> sum(size);
  if (auto arrays = narrow_only(messages))
    add_tree(std::move(*arrays), std::span{sum});
  else
    add_wide(messages, sum);
  return sum;
}

/// In a form that the compiler turns into vector instructions. Every comparison
/// with NaN is false.
template <class T>
bool all_finite(std::span<const T> values) {
  unsigned bad = 0;
  for (auto x : values)
    bad |=
        static_cast<unsigned>(!(std::abs(x) <= std::numeric_limits<T>::max()));
  return bad == 0;
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
  const auto& values = total.gradient.f64;
  if (total.narrow)
    sum.gradient = flat_array{std::vector<float>(values.begin(), values.end())};
  else
    sum.gradient.f64 = values;
  sum.finite = std::isfinite(total.loss) && all_finite(sum.gradient.f32.view())
               && all_finite(sum.gradient.f64.view());
  sum.seconds = total.seconds + seconds_since(start);
  return sum;
}

} // namespace syncnorm::train
