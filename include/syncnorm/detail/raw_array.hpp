#pragma once

#include "syncnorm/detail/caf_compat.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace syncnorm::detail {

/// Memory is allocated in steps of this many bytes while reading, so that a
/// false count costs no more than the bytes that really came.
inline constexpr std::size_t load_step_bytes = std::size_t{1} << 20;

/// Reverses the bytes of each element where the machine is big-endian.
template <class T>
void to_little_endian(std::span<T> values) {
  if constexpr (std::endian::native == std::endian::big)
    for (auto& value : values) {
      auto bytes = std::as_writable_bytes(std::span{&value, 1});
      std::ranges::reverse(bytes);
    }
}

/// Writes the count of `values`, then their bytes in little-endian order.
template <class Sink, class T>
bool save_array(Sink& f, std::span<const T> values) {
  if (!write_count(f, values.size()))
    return false;
  if constexpr (std::endian::native == std::endian::little) {
    return write_bytes(f, std::as_bytes(values));
  } else {
    std::vector<T> copy(values.begin(), values.end());
    to_little_endian(std::span{copy});
    return write_bytes(f, std::as_bytes(std::span{copy}));
  }
}

/// Reads what `save_array` wrote. Returns false if the count is above
/// `max_size` or if fewer bytes came.
template <class Source, class T, class Allocator>
bool load_array(Source& f, std::vector<T, Allocator>& values,
                std::uint64_t max_size) {
  constexpr std::size_t step = load_step_bytes / sizeof(T);
  std::uint64_t size = 0;
  if (!read_count(f, size) || size > max_size)
    return false;
  for (std::size_t done = 0; done < size;) {
    auto n = std::min<std::size_t>(step, size - done);
    values.resize(done + n);
    auto part = std::span{values}.subspan(done, n);
    if (!read_bytes(f, std::as_writable_bytes(part)))
      return false;
    done += n;
  }
  to_little_endian(std::span{values});
  return true;
}

} // namespace syncnorm::detail
