#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>

#include <cstddef>
#include <span>
#include <tuple>
#include <vector>

namespace syncnorm::detail {

/// What `x` becomes on its way to another node. On 0.17 what holds messages
/// needs a `system`.
template <class T>
std::vector<std::byte>
serialize(const T& x, [[maybe_unused]] caf::actor_system* system = nullptr) {
#if SYNCNORM_CAF_LEGACY
  std::vector<char> buffer;
  auto* context = system != nullptr ? system->dummy_execution_unit() : nullptr;
  caf::binary_serializer sink{context, buffer};
  std::ignore = sink(const_cast<T&>(x));
#else
  caf::byte_buffer buffer;
  caf::binary_serializer sink{buffer};
  std::ignore = sink.apply(x);
#endif
  auto bytes = std::as_bytes(std::span{buffer});
  return {bytes.begin(), bytes.end()};
}

/// Reads `x` from what `serialize` made. Returns false if that is no T. What
/// holds messages or actors needs a `system`.
template <class T>
bool deserialize(std::span<const std::byte> bytes, T& x,
                 [[maybe_unused]] caf::actor_system* system = nullptr) {
#if SYNCNORM_CAF_LEGACY
  auto* context = system != nullptr ? system->dummy_execution_unit() : nullptr;
  caf::binary_deserializer source{
      context, reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  return source(x) == caf::none;
#else
  auto source =
      system != nullptr
          ? caf::binary_deserializer{*system, bytes.data(), bytes.size()}
          : caf::binary_deserializer{bytes.data(), bytes.size()};
  return source.apply(x);
#endif
}

} // namespace syncnorm::detail
