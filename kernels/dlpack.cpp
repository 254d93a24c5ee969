#include "syncnorm/dlpack.hpp"

#include "kernels/validate.hpp"

#include <dlpack/dlpack.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

namespace syncnorm {

namespace {

using sizes_type = std::span<const std::int64_t>;

dtype type_of(std::string_view operation, const DLDataType& type) {
  if (type.lanes == 1 && type.code == kDLFloat) {
    if (type.bits == 16)
      return dtype::float16;
    if (type.bits == 32)
      return dtype::float32;
    if (type.bits == 64)
      return dtype::float64;
  }
  if (type.lanes == 1 && type.code == kDLBfloat && type.bits == 16)
    return dtype::bfloat16;
  fail(errc::dtype_mismatch, operation, "tensor.dtype",
       "a float of 16, 32 or 64 bits or a bfloat of 16, one lane",
       fmt::format("code {}, {} bits, {} lanes", type.code, type.bits,
                   type.lanes));
}

device device_of(std::string_view operation, const DLDevice& where) {
  auto bad = [&](std::string_view expected, std::string_view got) {
    fail(errc::device_mismatch, operation, "tensor.device", expected, got);
  };
  switch (where.device_type) {
  case kDLCPU:
  case kDLCUDAHost:
    return {};
  case kDLCUDA:
  case kDLCUDAManaged:
    if (where.device_id < 0)
      bad("a device index of 0 or more", std::to_string(where.device_id));
    return {device_type::cuda, where.device_id};
  default:
    bad("memory of a CPU or a CUDA device",
        fmt::format("device type {}", int(where.device_type)));
  }
  return {};
}

bool is_empty(sizes_type sizes) {
  return std::ranges::find(sizes, 0) != sizes.end();
}

/// The strides of `sizes` in `format`, without gaps. A size of 0 counts as 1,
/// so that the format can be read from them; they are 0 if the others' product
/// is beyond all integers.
std::vector<std::int64_t> dense_strides(sizes_type sizes,
                                        memory_format format) {
  std::vector<std::int64_t> result(sizes.size());
  std::int64_t step = 1;
  auto spread = [&](std::size_t i) {
    result[i] = step;
    auto size = std::max<std::int64_t>(sizes[i], 1);
    auto fits = size <= std::numeric_limits<std::int64_t>::max() / step;
    step = fits ? step * size : step;
    return fits;
  };
  auto last = format == memory_format::channels_last;
  auto fits = !last || spread(1);
  for (auto i = sizes.size(); i-- > 2;)
    fits = fits && spread(i);
  fits = fits && (last || spread(1));
  result[0] = step;
  return fits ? result : std::vector<std::int64_t>(sizes.size());
}

/// Whether `strides` are those of `format`; for the samples' stride, only that
/// samples do not overlap.
bool has_format(sizes_type sizes, sizes_type strides, memory_format format) {
  auto expected = dense_strides(sizes, format);
  for (std::size_t i = 1; i < sizes.size(); ++i)
    if (sizes[i] != 1 && strides[i] != expected[i])
      return false;
  return sizes[0] == 1 || is_empty(sizes) || strides[0] >= expected[0];
}

tensor_layout layout_of(std::string_view operation, const DLTensor& tensor) {
  if (tensor.ndim >= 2 && tensor.shape == nullptr)
    fail(errc::invalid_argument, operation, "tensor.shape", "a pointer",
         "null");
  if (tensor.ndim < 2)
    fail(errc::shape_mismatch, operation, "tensor",
         "[N, C] or [N, C, spatial...]",
         fmt::format("{} dimensions", tensor.ndim));
  sizes_type sizes{tensor.shape, std::size_t(tensor.ndim)};
  auto type = type_of(operation, tensor.dtype);
  auto where = device_of(operation, tensor.device);
  auto layout = checked_layout(operation, "tensor.sizes", type, sizes,
                               memory_format::channels_first, where);
  if (tensor.strides == nullptr)
    return layout;
  sizes_type strides{tensor.strides, sizes.size()};
  for (auto format :
       {memory_format::channels_first, memory_format::channels_last}) {
    if (!has_format(sizes, strides, format))
      continue;
    layout.format = format;
    if (sizes[0] != 1 && !is_empty(sizes))
      layout.sample_stride = strides[0];
    check_layout(operation, "tensor.strides", layout);
    return layout;
  }
  if (is_empty(sizes))
    return layout;
  fail(errc::shape_mismatch, operation, "tensor.strides",
       fmt::format("channels-first or channels-last strides, dense in a "
                   "sample, and samples {} or more elements apart, for [{}]",
                   layout.sample_stride, fmt::join(sizes, ", ")),
       fmt::format("[{}]", fmt::join(strides, ", ")));
}

/// What a tensor handed out by `to_dlpack` consists of.
struct exported {
  DLManagedTensor tensor{};
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::shared_ptr<void> owner;
};

DLDataType dlpack_type(dtype type) {
  auto code = type == dtype::bfloat16 ? kDLBfloat : kDLFloat;
  return {std::uint8_t(code), std::uint8_t(8 * size_of(type)), 1};
}

/// Whether the spatial sizes make up `spatial` elements.
bool make_up(sizes_type sizes, std::int64_t spatial) {
  if (std::ranges::any_of(sizes, [](auto size) { return size < 0; }))
    return false;
  if (spatial == 0)
    return is_empty(sizes);
  for (auto size : sizes) {
    if (size == 0 || spatial % size != 0)
      return false;
    spatial /= size;
  }
  return spatial == 1;
}

std::vector<std::int64_t> sizes_of(const tensor_view& view, sizes_type sizes) {
  auto [n, c, s] = view.shape();
  if (!sizes.empty()) {
    if (sizes.size() < 2 || sizes[0] != n || sizes[1] != c
        || !make_up(sizes.subspan(2), s))
      fail(errc::shape_mismatch, "to_dlpack", "sizes",
           fmt::format("those of the view's [N, C, S] = {}",
                       to_string(view.shape())),
           fmt::format("[{}]", fmt::join(sizes, ", ")));
    return {sizes.begin(), sizes.end()};
  }
  if (s == 1)
    return {n, c};
  return {n, c, s};
}

tensor_view checked_view(std::string_view operation,
                         const DLManagedTensor& tensor) {
  const auto& inner = tensor.dl_tensor;
  auto layout = layout_of(operation, inner);
  auto* data = static_cast<std::byte*>(inner.data);
  if (data != nullptr)
    data += inner.byte_offset;
  check_data(operation, "tensor.data", data, layout);
  return {data, layout};
}

} // namespace

tensor_view view_of(const DLManagedTensor& tensor) {
  return checked_view("view_of", tensor);
}

dlpack_tensor::dlpack_tensor(DLManagedTensor* tensor) {
  if (tensor == nullptr)
    fail(errc::invalid_argument, "dlpack_tensor", "tensor", "a pointer",
         "null");
  view_ = checked_view("dlpack_tensor", *tensor);
  tensor_.reset(tensor);
}

void dlpack_tensor::deleter::operator()(
    DLManagedTensor* tensor) const noexcept {
  if (tensor->deleter != nullptr)
    tensor->deleter(tensor);
}

DLManagedTensor* to_dlpack(const tensor_view& view, std::shared_ptr<void> owner,
                           sizes_type sizes) {
  auto result = std::make_unique<exported>();
  result->sizes = sizes_of(view, sizes);
  result->strides = dense_strides(result->sizes, view.format());
  result->strides[0] = view.sample_stride();
  result->owner = std::move(owner);
  auto on_cpu = view.where().type == device_type::cpu;
  auto& inner = result->tensor.dl_tensor;
  inner.data = view.data();
  inner.device = {on_cpu ? kDLCPU : kDLCUDA, on_cpu ? 0 : view.where().index};
  inner.ndim = int(result->sizes.size());
  inner.dtype = dlpack_type(view.type());
  inner.shape = result->sizes.data();
  inner.strides = result->strides.data();
  result->tensor.manager_ctx = result.get();
  result->tensor.deleter = [](DLManagedTensor* self) {
    delete static_cast<exported*>(self->manager_ctx);
  };
  return &result.release()->tensor;
}

} // namespace syncnorm
