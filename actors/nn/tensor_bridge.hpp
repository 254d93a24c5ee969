#pragma once

// From libtorch's tensors to the views and executions of the kernels.

#include "syncnorm/execution.hpp"
#include "syncnorm/tensor_view.hpp"

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace syncnorm::nn::detail {

/// The dtype of that name, or nothing if the kernels do not take it.
[[nodiscard]] std::optional<dtype> to_dtype(at::ScalarType type) noexcept;

[[nodiscard]] at::ScalarType to_scalar_type(dtype type) noexcept;

/// Returns `x` if the kernels can use its memory as it is, or a contiguous
/// copy, made by an operation that autograd knows.
[[nodiscard]] at::Tensor with_plain_layout(const at::Tensor& x);

/// `x` in the memory format of `like`, for use beside it.
[[nodiscard]] at::Tensor with_layout_of(const at::Tensor& like,
                                        const at::Tensor& x);

/// Memory for a result in the layout of `x`, without gaps between samples.
[[nodiscard]] at::Tensor make_like(const at::Tensor& x);

/// Views of a tensor whose memory the kernels can use as it is.
[[nodiscard]] const_tensor_view view_of(const at::Tensor& x);

[[nodiscard]] tensor_view mutable_view_of(const at::Tensor& x);

/// The calling thread, which splits a call over libtorch's threads as
/// `at::get_num_threads` allows.
class torch_execution {
public:
  /// @param split false: the calling thread only.
  explicit torch_execution(bool split = true);

  torch_execution(const torch_execution&) = delete;
  torch_execution& operator=(const torch_execution&) = delete;

  [[nodiscard]] operator const execution&() const noexcept {
    return run_;
  }

private:
  parallel_for split_{};
  execution run_;
};

/// The elements of a vector of C numbers, as float64.
[[nodiscard]] std::vector<double> to_doubles(const at::Tensor& x);

/// A tensor of those numbers with the options of `like`.
[[nodiscard]] at::Tensor from_doubles(const std::vector<double>& values,
                                      const at::TensorOptions& options);

} // namespace syncnorm::nn::detail
