#include "bench/cuda_tensors.hpp"

#include "syncnorm/batch_norm.hpp"
#include "tests/kernels/element.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

namespace syncnorm::bench {

namespace {

/// Normally distributed numbers for each channel, as elements of `layout`. The
/// noise repeats after a prime number of elements, which divides no distance
/// between two samples, channels or rows.
std::vector<std::byte> random_elements(const tensor_layout& layout,
                                       const std::vector<float>& mean,
                                       const std::vector<float>& deviation,
                                       unsigned seed) {
  std::mt19937 generator{seed};
  std::normal_distribution<float> normal;
  std::vector<float> noise(65521);
  for (auto& value : noise)
    value = normal(generator);
  auto last = layout.format == memory_format::channels_last;
  auto channels = std::size_t(layout.shape.channels);
  auto run = last ? 1 : std::size_t(layout.shape.spatial);
  auto size = size_of(layout.type);
  auto elements = std::size_t(layout.shape.per_channel()) * channels;
  std::vector<std::byte> result(elements * size);
  std::size_t next = 0;
  for (std::size_t i = 0, c = 0; i < elements; c = (c + 1) % channels)
    for (auto end = i + run; i < end; ++i) {
      test::write_element(layout.type, result.data() + i * size,
                          double(mean[c] + deviation[c] * noise[next]));
      next = next + 1 < noise.size() ? next + 1 : 0;
    }
  return result;
}

std::vector<device_memory> many(int copies,
                                const std::vector<std::byte>& content) {
  std::vector<device_memory> result;
  for (int i = 0; i < copies; ++i) {
    result.emplace_back(content.size());
    require_success(cudaMemcpy(result.back().data(), content.data(),
                               content.size(), cudaMemcpyHostToDevice));
  }
  return result;
}

std::vector<device_memory> blank(int copies, std::size_t bytes) {
  std::vector<device_memory> result;
  for (int i = 0; i < copies; ++i)
    result.emplace_back(bytes);
  return result;
}

/// Float32, in device memory.
device_memory floats(const std::vector<float>& content) {
  auto bytes = content.size() * sizeof(float);
  device_memory result{bytes};
  require_success(
      cudaMemcpy(result.data(), content.data(), bytes, cudaMemcpyHostToDevice));
  return result;
}

/// `value(r, c)` for each part r and channel c.
template <class Value>
device_memory table(int parts, const channel_values& of, const Value& value) {
  std::vector<float> content;
  for (int r = 0; r < parts; ++r)
    for (std::size_t c = 0; c < of.mean.size(); ++c)
      content.push_back(float(value(r, c)));
  return floats(content);
}

/// The variance of a replica's values.
double part_variance(const channel_values& of, int r, std::size_t c) {
  return std::pow(double(of.deviation[c]), 2) * (1 + 0.05 * r);
}

tensor_layout layout_of(const bench_shape& shape, dtype type,
                        memory_format format) {
  auto sizes = std::to_array(
      {shape.samples, shape.channels, shape.height * shape.width});
  return make_layout(type, sizes, format, {device_type::cuda, 0});
}

std::size_t scratch_for(const tensor_layout& layout) {
  return std::max({batch_moments_workspace(layout),
                   backward_reduce_workspace(layout), std::size_t{256}});
}

} // namespace

channel_values::channel_values(std::int64_t channels) {
  std::mt19937 generator{11};
  std::uniform_real_distribution<float> from_zero{0, 1};
  for (std::int64_t c = 0; c < channels; ++c) {
    mean.push_back(6 * from_zero(generator) - 3);
    deviation.push_back(0.5F + 1.5F * from_zero(generator));
    weight.push_back(0.5F + from_zero(generator));
    bias.push_back(2 * from_zero(generator) - 1);
  }
}

bench_tensors::bench_tensors(const bench_shape& of, dtype type,
                             memory_format format, int copies)
    : bench_tensors{of, type, format, copies, channel_values{of.channels}} {}

// dy has the bias as its mean, and deviation 1.
bench_tensors::bench_tensors(const bench_shape& of, dtype type,
                             memory_format format, int copies,
                             const channel_values& values)
    : shape{of},
      layout{layout_of(of, type, format)},
      bytes{std::size_t(layout.shape.per_channel() * of.channels)
            * size_of(type)},
      x{many(copies,
             random_elements(layout, values.mean, values.deviation, 7))},
      dy{many(copies,
              random_elements(layout, values.bias,
                              std::vector<float>(values.bias.size(), 1.F), 8))},
      out{blank(copies, bytes)},
      mean{floats(values.mean)},
      inv_std{table(1, values,
                    [&](int, auto c) { return 1 / values.deviation[c]; })},
      weight{floats(values.weight)},
      bias{floats(values.bias)},
      sum_dy{table(1, values,
                   [&](int, auto c) {
                     return double(layout.shape.per_channel())
                            * double(values.bias[c]);
                   })},
      sum_dy_xmu{table(1, values,
                       [&](int, auto c) {
                         return 0.5 * double(layout.shape.per_channel())
                                * double(values.weight[c])
                                * double(values.deviation[c]);
                       })},
      running_mean{floats(values.mean)},
      running_var{floats(values.deviation)},
      arrays{blank(4, std::size_t(of.channels) * sizeof(float))},
      part_means{table(bench_parts, values,
                       [&](int r, auto c) {
                         return double(values.mean[c])
                                + 0.1 * r * double(values.deviation[c]);
                       })},
      part_m2s{table(bench_parts, values,
                     [&](int r, auto c) {
                       return part_variance(values, r, c)
                              * double(layout.shape.per_channel());
                     })},
      part_inv_stds{table(bench_parts, values,
                          [&](int r, auto c) {
                            return 1
                                   / std::sqrt(part_variance(values, r, c)
                                               + finalize_options{}.eps);
                          })},
      part_counts{floats(
          std::vector<float>(bench_parts, float(layout.shape.per_channel())))},
      total_count{sizeof(std::int32_t)},
      scratch{scratch_for(layout)},
      scratch_bytes{scratch_for(layout)} {
  auto count = std::int32_t(layout.shape.per_channel());
  require_success(cudaMemcpy(total_count.data(), &count, sizeof(count),
                             cudaMemcpyHostToDevice));
}

void bench_tensors::clear_results() const {
  // All bits set are NaN in every type.
  constexpr int nan = 0xff;
  auto array_bytes = std::size_t(shape.channels) * sizeof(float);
  require_success(cudaMemset(out[0].data(), nan, bytes));
  for (const auto& array : arrays)
    require_success(cudaMemset(array.data(), nan, array_bytes));
  for (const auto* running : {&running_mean, &running_var})
    require_success(cudaMemset(running->data(), 0, array_bytes));
}

} // namespace syncnorm::bench
