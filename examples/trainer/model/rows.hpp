#pragma once

#include "trainer/run/flat_array.hpp"

#include <torch/types.h>

#include <cstdint>
#include <vector>

// A row is a tensor on the host that holds, one after the other, the values of
// several tensors, which may be on a device.

namespace syncnorm::train {

using tensor_list = std::vector<torch::Tensor>;

/// Number of values in all tensors.
inline std::int64_t count_values(const tensor_list& tensors) {
  std::int64_t count = 0;
  for (const auto& x : tensors)
    count += x.numel();
  return count;
}

/// Calls `f` with each tensor and its place in `row`.
template <class F>
void for_each_place(const tensor_list& tensors, const torch::Tensor& row, F f) {
  torch::NoGradGuard no_grad;
  std::int64_t at = 0;
  for (const auto& x : tensors) {
    f(x, row.narrow(0, at, x.numel()).view(x.sizes()));
    at += x.numel();
  }
}

/// Copies `tensors` to `row`.
inline void collect(const tensor_list& tensors, const torch::Tensor& row) {
  for_each_place(tensors, row,
                 [](const auto& x, const auto& place) { place.copy_(x); });
}

/// Copies `row` to `tensors`.
inline void spread(const torch::Tensor& row, const tensor_list& tensors) {
  for_each_place(tensors, row,
                 [](const auto& x, const auto& place) { x.copy_(place); });
}

/// A row of float32 or float64 as a message carries it.
inline flat_array to_flat(const torch::Tensor& row) {
  auto copy = [&]<class T>(const T* data) {
    return flat_array{std::vector<T>(data, data + row.numel())};
  };
  return row.scalar_type() == torch::kFloat64 ? copy(row.data_ptr<double>())
                                              : copy(row.data_ptr<float>());
}

} // namespace syncnorm::train
