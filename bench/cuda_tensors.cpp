#include "bench/cuda_tensors.hpp"

#include "kernels/half.hpp"
#include "syncnorm/batch_norm.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

namespace syncnorm::bench {

namespace {

constexpr int parts = 8;

void put(dtype type, std::byte* to, float value) {
  auto half = to_float16(value);
  auto brain = to_bfloat16(value);
  if (type == dtype::float32)
    std::memcpy(to, &value, sizeof(value));
  else if (type == dtype::float16)
    std::memcpy(to, &half, sizeof(half));
  else
    std::memcpy(to, &brain, sizeof(brain));
}

/// Normal numbers, as elements of `type`; they repeat after 2^16 of them.
std::vector<std::byte> random_elements(dtype type, std::size_t bytes) {
  std::mt19937 generator{7};
  std::normal_distribution<float> normal;
  std::vector<std::byte> result(bytes);
  auto first = std::min(bytes, size_of(type) << 16);
  for (std::size_t i = 0; i < first; i += size_of(type))
    put(type, result.data() + i, normal(generator));
  for (auto i = first; i < bytes; i += first)
    std::copy_n(result.begin(), std::min(first, bytes - i),
                result.begin() + std::ptrdiff_t(i));
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

device_memory floats(std::size_t count, float value) {
  std::vector<float> content(count, value);
  device_memory result{count * sizeof(float)};
  require_success(cudaMemcpy(result.data(), content.data(),
                             count * sizeof(float), cudaMemcpyHostToDevice));
  return result;
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

bench_tensors::bench_tensors(const bench_shape& of, dtype type,
                             memory_format format, int copies)
    : shape{of},
      layout{layout_of(of, type, format)},
      bytes{std::size_t(layout.shape.per_channel() * of.channels)
            * size_of(type)},
      x{many(copies, random_elements(type, bytes))},
      dy{many(copies, random_elements(type, bytes))},
      out{many(copies, std::vector<std::byte>(bytes))},
      mean{floats(std::size_t(of.channels), 0)},
      inv_std{floats(std::size_t(of.channels), 1)},
      weight{floats(std::size_t(of.channels), 1)},
      bias{floats(std::size_t(of.channels), 0)},
      sum_dy{floats(std::size_t(of.channels), 0)},
      sum_dy_xmu{floats(std::size_t(of.channels), 0)},
      weight_grad{floats(std::size_t(of.channels), 0)},
      bias_grad{floats(std::size_t(of.channels), 0)},
      running_mean{floats(std::size_t(of.channels), 0)},
      running_var{floats(std::size_t(of.channels), 1)},
      part_means{floats(std::size_t(of.channels * parts), 0)},
      part_m2s{floats(std::size_t(of.channels * parts), 1)},
      part_counts{floats(parts, float(layout.shape.per_channel()))},
      total_count{sizeof(std::int32_t)},
      scratch{scratch_for(layout)},
      scratch_bytes{scratch_for(layout)} {
  auto count = std::int32_t(layout.shape.per_channel());
  require_success(cudaMemcpy(total_count.data(), &count, sizeof(count),
                             cudaMemcpyHostToDevice));
}

} // namespace syncnorm::bench
