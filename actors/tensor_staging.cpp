#include "tensor_staging.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace syncnorm::detail {

namespace {

std::size_t bytes_of(const const_tensor_view& x) {
  return static_cast<std::size_t>(x.size()) * size_of(x.type());
}

/// Packs the samples without gaps.
void pack(const const_tensor_view& x, void* to) {
  auto [samples, channels, spatial] = x.shape();
  auto width = size_of(x.type());
  auto sample = static_cast<std::size_t>(channels * spatial) * width;
  auto stride = static_cast<std::size_t>(x.sample_stride()) * width;
  const auto* from = static_cast<const std::byte*>(x.data());
  // As a rule there are no gaps, and samples are short.
  if (stride == sample)
    return void(std::memcpy(to, from, bytes_of(x)));
  for (std::size_t n = 0; n < static_cast<std::size_t>(samples); ++n)
    std::memcpy(static_cast<std::byte*>(to) + n * sample, from + n * stride,
                sample);
}

} // namespace

shared_tensor tensor_staging::to_device(const device_stream& stream,
                                        const shared_tensor& x) {
  tensor_memory there{x.view().layout(), stream};
  uploads_.send(stream, there.view().data(), bytes_of(x.view()),
                [&](void* memory) { pack(x.view(), memory); });
  return there.share();
}

pinned_memory tensor_staging::take(const device_stream& stream,
                                   std::size_t bytes) {
  auto fits = std::ranges::find_if(
      idle_, [bytes](const auto& x) { return x.bytes() >= bytes; });
  if (fits != idle_.end()) {
    auto result = std::move(*fits);
    idle_.erase(fits);
    return result;
  }
  // Memory that is too small goes, so that only as much is kept as is needed at
  // a time.
  if (!idle_.empty())
    idle_.pop_back();
  return {stream, bytes};
}

void tensor_staging::to_host(const device_stream& stream,
                             const const_tensor_view& y, tensor_pool& pool,
                             way_back& back) {
  auto layout = y.layout();
  layout.where = {};
  back.memory = pool.take(layout);
  auto bytes = bytes_of(y);
  if (bytes == 0)
    return;
  back.copy = take(stream, bytes);
  stream.runtime().copy(stream.run(), back.copy.data(), {}, y.data(),
                        stream.where(), bytes);
}

shared_tensor tensor_staging::arrived(way_back& back) {
  auto bytes = bytes_of(back.memory->view());
  if (bytes != 0) {
    std::memcpy(back.memory->view().data(), back.copy.data(), bytes);
    idle_.push_back(std::move(back.copy));
  }
  return back.memory->share();
}

} // namespace syncnorm::detail
