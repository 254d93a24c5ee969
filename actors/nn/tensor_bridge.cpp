#include "actors/nn/tensor_bridge.hpp"

#include "actors/nn/torch_devices.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace syncnorm::nn::detail {

namespace {

void run_parts(void*, std::int64_t parts, parallel_for::body_type body,
               void* context) {
  at::parallel_for(0, parts, 1, [&](std::int64_t first, std::int64_t last) {
    for (auto i = first; i < last; ++i)
      body(context, i);
  });
}

at::MemoryFormat channels_last_of(const at::Tensor& x) {
  return x.dim() == 5 ? at::MemoryFormat::ChannelsLast3d
                      : at::MemoryFormat::ChannelsLast;
}

bool is_channels_last(const at::Tensor& x) {
  return (x.dim() == 4 || x.dim() == 5) && x.is_contiguous(channels_last_of(x));
}

/// Whether each sample has no gaps; the samples may lie apart, as in a slice.
bool has_dense_samples(const at::Tensor& x) {
  // Strides of a tensor without elements mean nothing.
  if (x.numel() == 0)
    return true;
  auto expected = std::int64_t{1};
  for (auto i = x.dim() - 1; i > 0; --i) {
    if (x.size(i) != 1 && x.stride(i) != expected)
      return false;
    expected *= x.size(i);
  }
  return x.size(0) <= 1 || x.stride(0) >= expected;
}

/// The layout of a tensor that came from `with_plain_layout`.
tensor_layout layout_of(const at::Tensor& x) {
  auto dense = has_dense_samples(x);
  auto format =
      dense ? memory_format::channels_first : memory_format::channels_last;
  auto sizes = x.sizes();
  auto layout = make_layout(*to_dtype(x.scalar_type()),
                            {sizes.data(), sizes.size()}, format);
  if (dense && x.size(0) > 1 && x.numel() != 0)
    layout.sample_stride = x.stride(0);
  layout.where = to_device(x.device());
  return layout;
}

} // namespace

std::optional<dtype> to_dtype(at::ScalarType type) noexcept {
  switch (type) {
  case at::kFloat:
    return dtype::float32;
  case at::kDouble:
    return dtype::float64;
  case at::kHalf:
    return dtype::float16;
  case at::kBFloat16:
    return dtype::bfloat16;
  default:
    return std::nullopt;
  }
}

at::ScalarType to_scalar_type(dtype type) noexcept {
  switch (type) {
  case dtype::float64:
    return at::kDouble;
  case dtype::float16:
    return at::kHalf;
  case dtype::bfloat16:
    return at::kBFloat16;
  default:
    return at::kFloat;
  }
}

at::Tensor with_plain_layout(const at::Tensor& x) {
  auto values = x.resolve_neg();
  if (has_dense_samples(values) || is_channels_last(values))
    return values;
  return values.contiguous();
}

at::Tensor with_layout_of(const at::Tensor& like, const at::Tensor& x) {
  auto values = x.resolve_neg();
  if (!has_dense_samples(like))
    return values.contiguous(channels_last_of(like));
  return has_dense_samples(values) ? values : values.contiguous();
}

at::Tensor make_like(const at::Tensor& x) {
  return at::empty_like(x, has_dense_samples(x) ? at::MemoryFormat::Contiguous
                                                : channels_last_of(x));
}

const_tensor_view view_of(const at::Tensor& x) {
  return {x.numel() == 0 ? nullptr : x.data_ptr(), layout_of(x)};
}

tensor_view mutable_view_of(const at::Tensor& x) {
  return {x.numel() == 0 ? nullptr : x.data_ptr(), layout_of(x)};
}

torch_execution::torch_execution(bool split) {
  auto threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  if (!split || threads <= 1)
    return;
  split_.run = run_parts;
  split_.parts = threads;
  run_.split = &split_;
}

std::vector<double> to_doubles(const at::Tensor& x) {
  auto values = x.to(at::kCPU, at::kDouble).contiguous();
  const auto* first = values.data_ptr<double>();
  return {first, first + values.numel()};
}

at::Tensor from_doubles(const std::vector<double>& values,
                        const at::TensorOptions& options) {
  auto result =
      at::empty({static_cast<std::int64_t>(values.size())}, at::kDouble);
  std::copy(values.begin(), values.end(), result.data_ptr<double>());
  return result.to(options);
}

} // namespace syncnorm::nn::detail
