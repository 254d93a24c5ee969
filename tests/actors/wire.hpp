#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <vector>

namespace syncnorm::test {

/// The bytes that `x` becomes on its way to another node.
template <class T>
std::vector<unsigned char> to_wire(const T& x) {
  auto bytes = detail::serialize(x);
  return {reinterpret_cast<const unsigned char*>(bytes.data()),
          reinterpret_cast<const unsigned char*>(bytes.data()) + bytes.size()};
}

/// Reads `x` from such bytes. Returns false if they are no T.
template <class T>
bool from_wire(const std::vector<unsigned char>& bytes, T& x) {
  return detail::deserialize(std::as_bytes(std::span{bytes}), x);
}

} // namespace syncnorm::test
