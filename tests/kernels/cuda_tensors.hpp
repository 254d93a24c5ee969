#pragma once

// Host tensors of any layout for tests of the CUDA kernels, with float64 as
// their interface.

#include "syncnorm/tensor_view.hpp"
#include "tests/kernels/element.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace syncnorm::testing {

/// Reproducible noise, uniform in [-sqrt(3), sqrt(3)]: deviation 1.
inline double noise(std::uint64_t seed, std::uint64_t index) {
  auto bits = (seed * 0x9e3779b97f4a7c15u) ^ (index + 0x632be59bd9b4e019u);
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  auto unit = double((bits ^ (bits >> 31)) >> 11) * 0x1p-53;
  return (2 * unit - 1) * std::sqrt(3.0);
}

/// Memory of a tensor: `offset` elements in front of it, which spoil its
/// alignment; the layout's gaps; and some elements behind the last one. All
/// bytes start as `fill`; 0xff gives NaN in every type.
class host_tensor {
public:
  /// Enough for a whole vector of any type.
  static constexpr std::int64_t behind = 32;

  host_tensor(const tensor_layout& layout, std::int64_t offset, int fill = 0xff)
      : layout_{layout},
        offset_{offset} {
    const auto& shape = layout.shape;
    auto span = (shape.samples - 1) * layout.sample_stride
                + shape.channels * shape.spatial;
    auto elements = std::size_t(offset + span + behind);
    bytes_.assign(elements * size_of(layout.type), std::byte(fill));
  }

  [[nodiscard]] const tensor_layout& layout() const {
    return layout_;
  }
  /// Bytes from the start of the memory to the first element.
  [[nodiscard]] std::size_t offset_bytes() const {
    return std::size_t(offset_) * size_of(layout_.type);
  }
  [[nodiscard]] std::vector<std::byte>& bytes() {
    return bytes_;
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const {
    return bytes_;
  }

  [[nodiscard]] double get(std::int64_t n, std::int64_t c,
                           std::int64_t s) const {
    return test::read_element(layout_.type, bytes_.data() + position(n, c, s));
  }
  void set(std::int64_t n, std::int64_t c, std::int64_t s, double value) {
    test::write_element(layout_.type, bytes_.data() + position(n, c, s), value);
  }

  /// The element's number without gaps between samples, in memory order.
  [[nodiscard]] std::int64_t flat(std::int64_t n, std::int64_t c,
                                  std::int64_t s) const {
    return n * layout_.shape.channels * layout_.shape.spatial + inner(c, s);
  }

  /// Calls `f(n, c, s)` for each element.
  template <class F>
  void for_each(const F& f) const {
    for (std::int64_t n = 0; n < layout_.shape.samples; ++n)
      for (std::int64_t c = 0; c < layout_.shape.channels; ++c)
        for (std::int64_t s = 0; s < layout_.shape.spatial; ++s)
          f(n, c, s);
  }

  /// Channel c gets values of mean `mean + c % 7` and deviation `deviation`.
  void fill_noise(std::uint64_t seed, double mean, double deviation) {
    for_each([&](auto n, auto c, auto s) {
      auto index = std::uint64_t(flat(n, c, s));
      set(n, c, s, mean + double(c % 7) + deviation * noise(seed, index));
    });
  }

  /// True if every byte outside of elements is still `fill`.
  [[nodiscard]] bool gaps_are(int fill) const {
    auto copy = bytes_;
    for_each([&](auto n, auto c, auto s) {
      std::fill_n(copy.begin() + std::ptrdiff_t(position(n, c, s)),
                  size_of(layout_.type), std::byte(fill));
    });
    return std::all_of(copy.begin(), copy.end(),
                       [&](auto byte) { return byte == std::byte(fill); });
  }

private:
  [[nodiscard]] std::int64_t inner(std::int64_t c, std::int64_t s) const {
    return layout_.format == memory_format::channels_first
               ? c * layout_.shape.spatial + s
               : s * layout_.shape.channels + c;
  }
  [[nodiscard]] std::size_t position(std::int64_t n, std::int64_t c,
                                     std::int64_t s) const {
    return std::size_t(offset_ + n * layout_.sample_stride + inner(c, s))
           * size_of(layout_.type);
  }

  tensor_layout layout_;
  std::int64_t offset_;
  std::vector<std::byte> bytes_;
};

} // namespace syncnorm::testing
