#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>

#include <cstddef>
#include <span>
#include <tuple>
#include <vector>

namespace syncnorm::test {

/// What `x` becomes on its way to another node. On 0.17 types that hold
/// messages need a `system`.
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

/// Reads `x` from what `serialize` made. Returns false if that is no T. Types
/// that hold messages or actors need a `system`.
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

/// The bytes that `x` becomes on its way to another node.
template <class T>
std::vector<unsigned char> to_wire(const T& x) {
  auto bytes = serialize(x);
  return {reinterpret_cast<const unsigned char*>(bytes.data()),
          reinterpret_cast<const unsigned char*>(bytes.data()) + bytes.size()};
}

/// Reads `x` from such bytes. Returns false if they are no T.
template <class T>
bool from_wire(const std::vector<unsigned char>& bytes, T& x) {
  return deserialize(std::as_bytes(std::span{bytes}), x);
}

} // namespace syncnorm::test
