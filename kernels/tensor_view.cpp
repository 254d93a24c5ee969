#include "syncnorm/tensor_view.hpp"

#include "kernels/validate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace syncnorm {

namespace {

/// The product of `sizes`, or -1 if it exceeds 2^63 - 1.
std::int64_t product(std::span<const std::int64_t> sizes) {
  if (std::ranges::find(sizes, 0) != sizes.end())
    return 0;
  std::int64_t result = 1;
  for (auto size : sizes) {
    if (size > std::numeric_limits<std::int64_t>::max() / result)
      return -1;
    result *= size;
  }
  return result;
}

} // namespace

std::string to_string(dtype type) {
  switch (type) {
  case dtype::float32:
    return "float32";
  case dtype::float64:
    return "float64";
  case dtype::float16:
    return "float16";
  case dtype::bfloat16:
    return "bfloat16";
  }
  return fmt::format("dtype {}", int(type));
}

std::string to_string(memory_format format) {
  switch (format) {
  case memory_format::channels_first:
    return "channels_first";
  case memory_format::channels_last:
    return "channels_last";
  }
  return fmt::format("memory format {}", int(format));
}

tensor_layout checked_layout(std::string_view operation,
                             std::string_view argument, dtype type,
                             std::span<const std::int64_t> sizes,
                             memory_format format, device where) {
  auto bad = [&](std::string_view expected) {
    fail(errc::invalid_argument, operation, argument, expected,
         fmt::format("[{}]", fmt::join(sizes, ", ")));
  };
  if (sizes.size() < 2)
    bad("[N, C] or [N, C, spatial...]");
  if (std::ranges::any_of(sizes, [](auto size) { return size < 0; }))
    bad("no negative size");
  tensor_layout result;
  result.type = type;
  result.shape = {sizes[0], sizes[1], product(sizes.subspan(2))};
  result.format = format;
  result.sample_stride = product(sizes.subspan(1));
  result.where = where;
  if (result.shape.spatial < 0 || result.sample_stride < 0)
    bad("a tensor of at most 2^63 - 1 bytes");
  check_layout(operation, argument, result);
  return result;
}

void check_data(std::string_view operation, std::string_view argument,
                const void* data, const tensor_layout& layout) {
  auto elements = layout.shape.per_channel() * layout.shape.channels;
  auto address = reinterpret_cast<std::uintptr_t>(data);
  if (data == nullptr && elements != 0)
    fail(errc::invalid_argument, operation, argument,
         fmt::format("memory of {} elements", elements), "null");
  if (address % size_of(layout.type) != 0)
    fail(errc::invalid_argument, operation, argument,
         fmt::format("a pointer aligned to {} bytes", size_of(layout.type)),
         fmt::format("{:#x}", address));
}

tensor_layout make_layout(dtype type, std::span<const std::int64_t> sizes,
                          memory_format format, device where) {
  check_type("make_layout", "type", type);
  check_format("make_layout", "format", format);
  return checked_layout("make_layout", "sizes", type, sizes, format, where);
}

const_tensor_view::const_tensor_view(const void* data,
                                     const tensor_layout& layout)
    : data_{data},
      layout_{layout} {
  check_layout("tensor_view", "layout", layout);
  check_data("tensor_view", "data", data, layout);
}

tensor_view::tensor_view(void* data, const tensor_layout& layout)
    : const_tensor_view{data, layout} {}

} // namespace syncnorm
