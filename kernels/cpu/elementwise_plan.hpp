#pragma once

#include "kernels/backend.hpp"
#include "kernels/cpu/walk.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace syncnorm::cpu {

/// Bytes of each kind of constant of neighbouring channels kept on the stack:
/// at most four kinds, in half of a first-level cache.
inline constexpr std::int64_t row_tile_bytes = 4096;

/// Outputs of tensors of at least this many bytes are written past the caches:
/// none of their lines would still be cached when read again, and lines need
/// not be read before they are written.
inline constexpr std::int64_t streamed_bytes = std::int64_t{20} << 20;

/// Bytes of an output that are processed from front to back. Blocks of this
/// size follow each other from the last one to the first: a reduction has just
/// read the same inputs, and a core's own cache still has their end.
inline constexpr std::int64_t walked_bytes = std::int64_t{1} << 17;
/// Bytes of an output that a core's own cache holds together with the inputs:
/// one block.
inline constexpr std::int64_t cached_bytes = std::int64_t{1} << 19;

/// Lines [begin, end), and where the next block to process begins; the last
/// block names itself.
struct line_block {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t next = 0;
};

/// How many lines of `bytes` bytes each a block has, a multiple of `fold`.
/// @param total  bytes of all lines of the call.
[[nodiscard]] inline std::int64_t
lines_of_block(std::int64_t bytes, std::int64_t total, std::int64_t fold) {
  auto wanted = total <= cached_bytes ? cached_bytes : walked_bytes;
  return std::max(wanted / (bytes * fold), std::int64_t{1}) * fold;
}

/// Calls `body(line_block)` for the blocks of [first, last), from the last one
/// to the first.
template <class Body>
void for_blocks_from_end(std::int64_t first, std::int64_t last,
                         std::int64_t size, const Body& body) {
  for (auto end = last; end > first;) {
    auto begin = first + (end - first - 1) / size * size;
    body(line_block{begin, end, std::max(begin - size, first)});
    end = begin;
  }
}

/// Whether an output is written past the caches. Memory that was just read as
/// the input is in a cache already. For some channels of a tensor, the whole
/// tensor counts.
[[nodiscard]] inline bool is_streamed(const const_tensor_view& out,
                                      const void* in) {
  // Not samples * stride: the stride of a single sample may be any number.
  auto column = out.shape().samples * std::int64_t(size_of(out.type()));
  return out.data() != in
         && out.sample_stride() >= (streamed_bytes + column - 1) / column;
}

[[nodiscard]] inline bool is_streamed(const backward_input_call& call) {
  return is_streamed(call.dx, call.dy.data())
         && call.dx.data() != call.x.data();
}

/// Elements from p to where a vector of `lanes` elements would be aligned, but
/// at most n.
template <class T>
[[nodiscard]] std::int64_t elements_to_boundary(const T* p, std::int64_t lanes,
                                                std::int64_t n) {
  auto bytes = std::uintptr_t(lanes) * sizeof(T);
  auto past = reinterpret_cast<std::uintptr_t>(p) % bytes;
  auto missing = std::int64_t(past == 0 ? 0 : (bytes - past) / sizeof(T));
  return std::min(missing, n);
}

/// Some neighbouring channels of rows, and how many rows are treated as one.
struct row_tile {
  std::int64_t first = 0;
  std::int64_t channels = 0;
  std::int64_t fold = 1;
};

/// Cuts rows into tiles whose constants fit in `row_tile_bytes`.
template <class Real>
class row_tiles {
public:
  explicit row_tiles(const walk& w) : channels_{w.channels} {
    if (!w.dense_rows || channels_ >= width / 2)
      return;
    // At most 512 columns or, with up to 63 channels, a multiple of 16 rows.
    fold_ = fold_of(channels_, width / 4);
    if (fold_ * channels_ > width)
      fold_ = 1;
  }

  [[nodiscard]] std::int64_t size() const {
    return (channels_ + width - 1) / width;
  }

  [[nodiscard]] row_tile operator[](std::int64_t i) const {
    return {i * width, std::min(width, channels_ - i * width), fold_};
  }

private:
  static constexpr std::int64_t width = row_tile_bytes / sizeof(Real);

  std::int64_t channels_;
  std::int64_t fold_ = 1;
};

/// How many lines of `length` elements together begin and end on words of a
/// mask.
[[nodiscard]] inline std::int64_t mask_grain(std::int64_t length) {
  std::int64_t grain = 64;
  for (; grain > 1 && length % 2 == 0; length /= 2)
    grain /= 2;
  return grain;
}

} // namespace syncnorm::cpu
