#include "syncnorm/detail/host_copy.hpp"

#include "kept_memory.hpp"

#include "syncnorm/error.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace syncnorm::detail {

namespace {

constexpr std::size_t alignment = 16;

std::size_t padded(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

std::array<device_array, 2> arrays_of(const batch_norm_message& x) {
  return {x.values.array(), x.update.running.array()};
}

} // namespace

// -- to the host --------------------------------------------------------------

host_copy::host_copy(const device_stream& stream,
                     std::span<const device_array> arrays, pinned_memory reuse)
    : host_{std::move(reuse)} {
  std::size_t bytes = 0;
  for (const auto& x : arrays) {
    parts_.push_back({bytes, x.size(), x.type()});
    bytes += padded(x.bytes());
  }
  if (host_.bytes() < bytes || host_.data() == nullptr)
    host_ = pinned_memory{stream, std::max(bytes, alignment)};
  work_.keep = std::make_shared<pinned_memory>(host_);
  kept_memory written{work_.keep};
  std::vector<device_reading> readings;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].size() == 0)
      continue;
    const auto& from = readings.emplace_back(arrays[i].read_on(stream));
    stream.runtime().copy(
        stream.run(), static_cast<std::byte*>(host_.data()) + parts_[i].offset,
        {}, from.data(), stream.where(), arrays[i].bytes());
  }
  work_.end = stream.record();
  written.let_go();
}

std::vector<double> host_copy::read(std::size_t i) const {
  const auto& x = parts_[i];
  const auto* first = static_cast<const std::byte*>(host_.data()) + x.offset;
  auto widened = [&]<class T>(const T* values) {
    return std::vector<double>(values, values + x.size);
  };
  if (x.type == dtype::float64)
    return widened(reinterpret_cast<const double*>(first));
  return widened(reinterpret_cast<const float*>(first));
}

host_message::host_message(batch_norm_message message, pinned_memory reuse)
    : message_{std::move(message)},
      copy_{message_.values.array().stream(), arrays_of(message_),
            std::move(reuse)} {}

batch_norm_message host_message::finish(pinned_memory& reuse) {
  reuse = copy_.memory();
  message_.values = double_array{copy_.read(0)};
  if (message_.update.running.on_device())
    message_.update.running = double_array{copy_.read(1)};
  return std::move(message_);
}

// -- to the device ------------------------------------------------------------

upload_memory::~upload_memory() {
  for (const auto& x : slots_)
    try {
      x.read.synchronize();
    } catch (const error&) {
      // The device is lost: nothing is read any more.
    }
}

upload_memory::slot& upload_memory::take(const device_stream& stream,
                                         std::size_t bytes) {
  for (auto& x : slots_)
    if (x.memory.bytes() >= bytes && x.read.has_passed())
      return x;
  return slots_.emplace_back(slot{pinned_memory{stream, bytes}, {}});
}

void upload_memory::enqueue(const device_stream& stream, void* to, slot& from,
                            std::size_t bytes) {
  kept_memory read{std::make_shared<pinned_memory>(from.memory)};
  try {
    stream.runtime().copy(stream.run(), to, stream.where(), from.memory.data(),
                          {}, bytes);
    from.read = stream.record();
  } catch (...) {
    slots_.erase(slots_.begin() + (&from - slots_.data()));
    throw;
  }
  read.let_go();
}

device_array upload_memory::upload(const device_stream& stream, dtype type,
                                   std::span<const double> values) {
  device_array result{stream, type, values.size()};
  send(stream, result.data(), result.bytes(), [&](void* memory) {
    if (type == dtype::float64)
      std::ranges::copy(values, static_cast<double*>(memory));
    else
      std::ranges::transform(values, static_cast<float*>(memory),
                             [](double x) { return static_cast<float>(x); });
  });
  result.publish();
  return result;
}

} // namespace syncnorm::detail
