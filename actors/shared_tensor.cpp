#include "syncnorm/shared_tensor.hpp"

#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace syncnorm {

namespace {

std::size_t elements_of(const tensor_layout& layout) {
  return static_cast<std::size_t>(layout.shape.per_channel()
                                  * layout.shape.channels);
}

std::size_t bytes_of(const tensor_layout& layout) {
  return elements_of(layout) * size_of(layout.type);
}

} // namespace

shared_tensor shared_tensor::samples(std::int64_t first,
                                     std::int64_t count) const {
  auto layout = view_.layout();
  auto all = layout.shape.samples;
  // Beyond the end, `all - first` is negative.
  if (first < 0 || count < 0 || count > all - first)
    throw error{errc::invalid_argument,
                fmt::format("shared_tensor::samples: expected a part of {} "
                            "samples, got {} from {} on",
                            all, count, first)};
  layout.shape.samples = count;
  auto offset = static_cast<std::size_t>(count == 0 ? 0 : first)
                * static_cast<std::size_t>(layout.sample_stride)
                * size_of(layout.type);
  const auto* begin = static_cast<const std::byte*>(view_.data());
  return {const_tensor_view{begin + offset, layout}, owner_};
}

tensor_memory::tensor_memory(tensor_layout layout,
                             const device_stream& stream) {
  layout = without_gaps(layout, stream ? stream.where() : device{});
  if (stream) {
    auto memory = std::make_shared<device_array>(stream, layout.type,
                                                 elements_of(layout));
    bytes_ = {memory, memory->data()};
  } else {
    bytes_ = std::make_shared_for_overwrite<cache_line[]>(lines_for(layout));
  }
  view_ = {bytes_.get(), layout};
}

tensor_memory::tensor_memory(const tensor_layout& layout,
                             std::shared_ptr<cache_line[]> lines)
    : bytes_{std::move(lines)},
      view_{bytes_.get(), layout} {}

tensor_layout tensor_memory::without_gaps(const tensor_layout& layout,
                                          device where) {
  auto [samples, channels, spatial] = layout.shape;
  std::array sizes{samples, channels, spatial};
  return make_layout(layout.type, sizes, layout.format, where);
}

std::size_t tensor_memory::lines_for(const tensor_layout& layout) {
  return bytes_of(layout) / sizeof(cache_line) + 1;
}

namespace detail {

tensor_header make_tensor_header(const tensor_layout& layout) {
  tensor_header header{static_cast<std::int64_t>(layout.type),
                       static_cast<std::int64_t>(layout.format),
                       layout.shape.samples, layout.shape.channels,
                       layout.shape.spatial};
  if constexpr (std::endian::native == std::endian::big)
    reverse_elements(std::as_writable_bytes(std::span{header}), 8);
  return header;
}

namespace {

/// Whether the sizes of a tensor, without those that are zero, make at most
/// `max_bytes`: an empty tensor from elsewhere must not make anybody count to
/// 2^60.
bool is_bounded(const tensor_layout& layout) {
  auto left = shared_tensor::max_bytes / size_of(layout.type);
  auto [samples, channels, spatial] = layout.shape;
  for (auto size : {samples, channels, spatial})
    left /= static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1));
  return left > 0;
}

} // namespace

std::optional<tensor_layout> parse_tensor_header(const tensor_header& header,
                                                 std::uint64_t bytes) {
  auto native = header;
  if constexpr (std::endian::native == std::endian::big)
    reverse_elements(std::as_writable_bytes(std::span{native}), 8);
  auto [type, format, samples, channels, spatial] = native;
  if (type < 0 || type > static_cast<std::int64_t>(dtype::bfloat16)
      || format < 0
      || format > static_cast<std::int64_t>(memory_format::channels_last))
    return std::nullopt;
  try {
    std::array sizes{samples, channels, spatial};
    auto layout = make_layout(static_cast<dtype>(type), sizes,
                              static_cast<memory_format>(format));
    if (bytes_of(layout) != bytes || !is_bounded(layout))
      return std::nullopt;
    return layout;
  } catch (const error&) {
    return std::nullopt;
  }
}

void reverse_elements(std::span<std::byte> bytes, std::size_t width) {
  for (std::size_t i = 0; i + width <= bytes.size(); i += width)
    std::ranges::reverse(bytes.subspan(i, width));
}

} // namespace detail

} // namespace syncnorm
