#include "bench/cuda_check.hpp"

#include "syncnorm/batch_norm.hpp"
#include "tests/kernels/element.hpp"
#include "tests/kernels/tolerance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace syncnorm::bench {

namespace {

using expected_array = expectations::expected_array;
using expected_results = expectations::expected_results;

/// The root mean square of dy, roughly: its deviation is 1, its mean up to 1.
constexpr double dy_size = 1.5;

/// Upper limit for the sum of the magnitudes of the terms of an element of y or
/// dx.
constexpr double element_size = 30;

/// The tests' tolerance is the distance of one result from the truth; here two
/// results are compared.
double twice(std::string_view operation, dtype type) {
  return 2 * tolerance::of(operation, type);
}

template <class Value>
std::vector<Value> host_copy(const void* from, std::size_t count) {
  std::vector<Value> result(count);
  require_success(cudaMemcpy(result.data(), from, count * sizeof(Value),
                             cudaMemcpyDeviceToHost));
  return result;
}

wrong_result difference(const std::string& who, const std::string& where,
                        double found, double want) {
  return wrong_result{
      fmt::format("{}: {} is {}, on the CPU {}", who, where, found, want)};
}

/// The operations' inputs, copied to the host, and the CPU's results for them.
class host_side {
public:
  explicit host_side(const bench_tensors& t)
      : layout_{t.layout},
        channels_(std::size_t(t.shape.channels)),
        count_{t.layout.shape.per_channel()},
        x_{host_copy<std::byte>(t.x[0].data(), t.bytes)},
        dy_{host_copy<std::byte>(t.dy[0].data(), t.bytes)},
        mean_{floats(t.mean)},
        inv_std_{floats(t.inv_std)},
        weight_{floats(t.weight)},
        bias_{floats(t.bias)},
        sum_dy_{floats(t.sum_dy)},
        sum_dy_xmu_{floats(t.sum_dy_xmu)},
        part_means_{floats(t.part_means, bench_parts)},
        part_m2s_{floats(t.part_m2s, bench_parts)} {
    layout_.where = {};
    scratch_.resize(std::max(batch_moments_workspace(layout_),
                             backward_reduce_workspace(layout_)));
  }

  expected_results moments() {
    auto mean = blank();
    auto m2 = blank();
    auto out = view(mean, m2);
    batch_moments({}, x(), out, scratch());
    auto inv_std = m2;
    for (auto& value : inv_std)
      value = float(1 / std::sqrt(value / double(count_) + options_.eps));
    auto mean_unit = twice("batch_moments: mean", layout_.type);
    auto m2_unit = twice("batch_moments: m2", layout_.type);
    return {
        {{"mean", mean_unit, mean, sizes(mean)},
         {"m2", m2_unit, m2, magnitudes(m2)},
         {"inverse standard deviation", m2_unit, inv_std, magnitudes(inv_std)}},
        {}};
  }

  expected_results merge_and_finalize() {
    std::vector<const_moments_view> parts;
    for (std::size_t r = 0; r < bench_parts; ++r)
      parts.push_back({count_, part_means_.data() + r * channels_,
                       part_m2s_.data() + r * channels_,
                       std::int64_t(channels_), dtype::float32, layout_.where});
    auto mean = blank();
    auto inv_std = blank();
    auto running_mean = blank();
    auto running_var = blank();
    auto total = view(mean, inv_std);
    merge_moments({}, parts, total);
    finalize_moments({}, total, options_, mean.data(), inv_std.data(),
                     {running_mean.data(), running_var.data()});
    auto mean_unit = twice("merge_moments: mean", dtype::float32);
    auto m2_unit = twice("merge_moments: m2", dtype::float32);
    return {
        {{"mean", mean_unit, mean, sizes(mean)},
         {"inverse standard deviation", m2_unit, inv_std, magnitudes(inv_std)},
         {"running mean", mean_unit, running_mean, sizes(running_mean)},
         {"running variance", m2_unit, running_var, magnitudes(running_var)}},
        {}};
  }

  expected_results normalize() {
    std::vector<std::byte> y(x_.size());
    syncnorm::normalize({}, x(), parameters(), {y.data(), layout_});
    return elements("normalize", std::move(y));
  }

  expected_results backward_reduce() {
    auto sum_dy = blank();
    auto sum_dy_xmu = blank();
    auto weight_grad = blank();
    auto bias_grad = blank();
    syncnorm::backward_reduce({}, dy(), x(), parameters(), nullptr,
                              {sum_dy.data(), sum_dy_xmu.data(),
                               weight_grad.data(), bias_grad.data()},
                              scratch());
    auto unit = twice("backward_reduce", layout_.type);
    // An upper limit: a sum of products is below that of the squares.
    std::vector<double> size(channels_, double(count_) * dy_size);
    auto xmu_size = size;
    for (std::size_t c = 0; c < channels_; ++c)
      xmu_size[c] /= double(inv_std_[c]);
    return {{{"sum of dy", unit, sum_dy, size},
             {"sum of dy (x - mean)", unit, sum_dy_xmu, xmu_size},
             {"gradient of the weight", unit, weight_grad, size},
             {"gradient of the bias", unit, bias_grad, size}},
            {}};
  }

  expected_results backward_input() {
    std::vector<std::byte> dx(x_.size());
    syncnorm::backward_input({}, dy(), x(), parameters(),
                             {sum_dy_.data(), sum_dy_xmu_.data(), count_},
                             nullptr, {dx.data(), layout_});
    return elements("backward_input", std::move(dx));
  }

private:
  [[nodiscard]] std::vector<float> floats(const device_memory& from,
                                          std::size_t parts = 1) const {
    return host_copy<float>(from.data(), parts * channels_);
  }
  [[nodiscard]] std::vector<float> blank() const {
    return std::vector<float>(channels_);
  }

  /// |value| plus the deviation: the scale of a mean.
  [[nodiscard]] std::vector<double>
  sizes(const std::vector<float>& values) const {
    auto result = magnitudes(values);
    for (std::size_t c = 0; c < channels_; ++c)
      result[c] += 1 / double(inv_std_[c]);
    return result;
  }
  [[nodiscard]] static std::vector<double>
  magnitudes(const std::vector<float>& values) {
    std::vector<double> result;
    for (auto value : values)
      result.push_back(std::abs(double(value)));
    return result;
  }

  [[nodiscard]] expected_results elements(std::string_view operation,
                                          std::vector<std::byte> tensor) const {
    return {{},
            std::move(tensor),
            twice(operation, layout_.type),
            twice(operation, dtype::float32) * element_size};
  }

  [[nodiscard]] const_tensor_view x() const {
    return {x_.data(), layout_};
  }
  [[nodiscard]] const_tensor_view dy() const {
    return {dy_.data(), layout_};
  }
  [[nodiscard]] channel_parameters parameters() const {
    return {mean_.data(), inv_std_.data(), weight_.data(), bias_.data()};
  }
  [[nodiscard]] moments_view view(std::vector<float>& mean,
                                  std::vector<float>& m2) const {
    return {0,
            mean.data(),
            m2.data(),
            std::int64_t(channels_),
            dtype::float32,
            layout_.where};
  }
  [[nodiscard]] workspace scratch() {
    return {scratch_.data(), scratch_.size()};
  }

  tensor_layout layout_;
  std::size_t channels_;
  std::int64_t count_;
  finalize_options options_;
  std::vector<std::byte> x_, dy_;
  std::vector<float> mean_, inv_std_, weight_, bias_, sum_dy_, sum_dy_xmu_,
      part_means_, part_m2s_;
  std::vector<std::byte> scratch_;
};

} // namespace

expectations::expectations(const bench_tensors& tensors)
    : type_{tensors.layout.type} {
  host_side host{tensors};
  // In the order of `operation`.
  by_operation_ = {host.moments(), host.merge_and_finalize(), host.normalize(),
                   host.backward_reduce(), host.backward_input()};
}

void expectations::check(const std::string& who, operation which,
                         const results& found, double least) const {
  const auto& want = by_operation_[std::size_t(which)];
  for (std::size_t i = 0; i < want.arrays.size(); ++i) {
    if (found.arrays.at(i) == nullptr)
      continue;
    const auto& [name, unit, values, scale] = want.arrays[i];
    auto there = host_copy<float>(found.arrays[i], values.size());
    for (std::size_t c = 0; c < values.size(); ++c)
      if (!(std::abs(double(there[c]) - double(values[c]))
            <= std::max(unit, least) * scale[c]))
        throw difference(who, fmt::format("{} of channel {}", name, c),
                         there[c], values[c]);
  }
  if (!want.tensor.empty())
    check_tensor(who, want, found.tensor);
}

void expectations::check_tensor(const std::string& who,
                                const expected_results& want,
                                const void* found) const {
  auto there = host_copy<std::byte>(found, want.tensor.size());
  for (std::size_t i = 0; i < there.size(); i += size_of(type_)) {
    auto a = test::read_element(type_, there.data() + i);
    auto b = test::read_element(type_, want.tensor.data() + i);
    auto allowed = want.rounding * std::abs(b) + want.arithmetic;
    if (!(std::abs(a - b) <= allowed))
      throw difference(who, fmt::format("element {}", i / size_of(type_)), a,
                       b);
  }
}

} // namespace syncnorm::bench
