#pragma once

// Tensors for tests: values as mathematics sees them, and memory as kernels see
// it, with guards around and between the tensor's elements.

#include "syncnorm/tensor_view.hpp"
#include "tests/kernels/element.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace syncnorm::test {

/// Values of a tensor in float64, element (n, c, s) at [n, c, s].
class values {
public:
  explicit values(const tensor_shape& shape)
      : shape_{shape},
        data_(std::size_t(shape.per_channel() * shape.channels)) {}

  [[nodiscard]] const tensor_shape& shape() const {
    return shape_;
  }
  [[nodiscard]] double& at(std::int64_t n, std::int64_t c, std::int64_t s) {
    return data_[index(n, c, s)];
  }
  [[nodiscard]] double at(std::int64_t n, std::int64_t c,
                          std::int64_t s) const {
    return data_[index(n, c, s)];
  }

  /// Calls `body(n, c, s)` for each element.
  template <class Body>
  void for_each(const Body& body) const {
    for (std::int64_t n = 0; n < shape_.samples; ++n)
      for (std::int64_t c = 0; c < shape_.channels; ++c)
        for (std::int64_t s = 0; s < shape_.spatial; ++s)
          body(n, c, s);
  }

private:
  [[nodiscard]] std::size_t index(std::int64_t n, std::int64_t c,
                                  std::int64_t s) const {
    return std::size_t((n * shape_.channels + c) * shape_.spatial + s);
  }

  tensor_shape shape_;
  std::vector<double> data_;
};

/// 2^16 values of the standard normal distribution.
inline const std::vector<double>& normal_sample() {
  static const auto sample = [] {
    std::mt19937 engine;
    std::normal_distribution<double> distribution;
    std::vector<double> result(std::size_t{1} << 16);
    for (auto& value : result)
      value = distribution(engine);
    return result;
  }();
  return sample;
}

/// Values of a normal distribution, chosen from a sample of it by a linear
/// congruential generator (Knuth's MMIX). Drawing each from the distribution
/// itself would take longer than all that the tests do with them.
inline values random_values(const tensor_shape& shape, unsigned seed,
                            double mean = 0, double deviation = 1) {
  const auto& sample = normal_sample();
  std::linear_congruential_engine<std::uint64_t, 6364136223846793005,
                                  1442695040888963407, 0>
      engine{seed};
  values result{shape};
  result.for_each([&](auto n, auto c, auto s) {
    result.at(n, c, s) = mean + deviation * sample[engine() >> 48];
  });
  return result;
}

/// Values `size(c)` in each channel, alternately positive and negative, so that
/// a long sum of the squares rounds to one side. If planes are odd, the first
/// element is 0: the first plane then has mean 0.
template <class Size>
values alternating_values(const tensor_shape& shape, const Size& size) {
  values result{shape};
  result.for_each([&](auto n, auto c, auto s) {
    auto i = n * shape.spatial + s;
    if (i > 0 || shape.spatial % 2 == 0)
      result.at(n, c, s) = i % 2 == 0 ? size(c) : -size(c);
  });
  return result;
}

/// `value` rounded to `type`.
inline double round_to(dtype type, double value) {
  std::byte element[8];
  write_element(type, element, value);
  return read_element(type, element);
}

/// Memory of n bytes that starts `skip` bytes after an address aligned to 64.
/// All of it, and 64 bytes before and behind it, hold a pattern at first.
class guarded_memory {
public:
  explicit guarded_memory(std::size_t bytes, std::size_t skip = 0)
      : bytes_{bytes},
        storage_(bytes + skip + 64 * 3, pattern) {
    auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    offset_ = 64 + (64 - address % 64) % 64 + skip;
  }

  [[nodiscard]] std::byte* data() {
    return storage_.data() + offset_;
  }
  [[nodiscard]] const std::byte* data() const {
    return storage_.data() + offset_;
  }
  [[nodiscard]] std::size_t size() const {
    return bytes_;
  }

  /// Whether the memory before and behind it is unchanged.
  [[nodiscard]] bool guards_intact() const {
    return is_pattern(storage_.data(), data())
           && is_pattern(data() + bytes_, storage_.data() + storage_.size());
  }

  /// Whether nothing was written at all.
  [[nodiscard]] bool untouched() const {
    return is_pattern(storage_.data(), storage_.data() + storage_.size());
  }

  static constexpr std::byte pattern{0xa5};

  static bool is_pattern(const std::byte* begin, const std::byte* end) {
    return std::all_of(begin, end, [](auto byte) { return byte == pattern; });
  }

private:
  std::size_t bytes_;
  std::size_t offset_ = 0;
  std::vector<std::byte> storage_;
};

/// The memory of a tensor.
class tensor {
public:
  /// @param skip  elements between an aligned address and the first.
  explicit tensor(const tensor_layout& layout, std::size_t skip = 0)
      : layout_{layout},
        memory_{bytes_of(layout), skip * size_of(layout.type)} {}

  /// Holds `source`, rounded to the dtype.
  tensor(const tensor_layout& layout, const values& source,
         std::size_t skip = 0)
      : tensor{layout, skip} {
    source.for_each([&](auto n, auto c, auto s) {
      write_element(layout_.type, element(n, c, s), source.at(n, c, s));
    });
  }

  [[nodiscard]] tensor_view view() {
    return {memory_.data(), layout_};
  }

  [[nodiscard]] test::values get() const {
    test::values result{layout_.shape};
    result.for_each([&](auto n, auto c, auto s) {
      result.at(n, c, s) =
          read_element(layout_.type, memory_.data() + offset(n, c, s));
    });
    return result;
  }

  /// Whether all memory outside of elements is unchanged.
  [[nodiscard]] bool guards_intact() const {
    if (!memory_.guards_intact())
      return false;
    for (std::int64_t n = 1; n < layout_.shape.samples; ++n)
      if (!guarded_memory::is_pattern(memory_.data() + end_of_sample(n - 1),
                                      memory_.data() + offset(n, 0, 0)))
        return false;
    return true;
  }

  [[nodiscard]] bool untouched() const {
    return memory_.untouched();
  }

private:
  static std::size_t bytes_of(const tensor_layout& layout) {
    auto [n, c, s] = layout.shape;
    auto elements = n == 0 ? 0 : (n - 1) * layout.sample_stride + c * s;
    return std::size_t(elements) * size_of(layout.type);
  }

  /// In bytes, as is `offset`.
  [[nodiscard]] std::size_t end_of_sample(std::int64_t n) const {
    auto elements = layout_.shape.channels * layout_.shape.spatial;
    return offset(n, 0, 0) + std::size_t(elements) * size_of(layout_.type);
  }

  [[nodiscard]] std::size_t offset(std::int64_t n, std::int64_t c,
                                   std::int64_t s) const {
    auto [samples, channels, spatial] = layout_.shape;
    auto inner = layout_.format == memory_format::channels_first
                     ? c * spatial + s
                     : s * channels + c;
    return std::size_t(n * layout_.sample_stride + inner)
           * size_of(layout_.type);
  }

  std::byte* element(std::int64_t n, std::int64_t c, std::int64_t s) {
    return memory_.data() + offset(n, c, s);
  }

  tensor_layout layout_;
  guarded_memory memory_;
};

/// An array with an element for each channel, of a dtype chosen at run time.
class channel_array {
public:
  channel_array(dtype type, std::int64_t channels)
      : type_{type},
        memory_{std::size_t(channels) * size_of(type)} {}

  channel_array(dtype type, const std::vector<double>& source)
      : channel_array{type, std::int64_t(source.size())} {
    for (std::size_t c = 0; c < source.size(); ++c)
      write_element(type, memory_.data() + c * size_of(type), source[c]);
  }

  [[nodiscard]] void* data() {
    return memory_.data();
  }
  [[nodiscard]] double operator[](std::int64_t c) const {
    return read_element(type_,
                        memory_.data() + std::size_t(c) * size_of(type_));
  }
  [[nodiscard]] std::vector<double> get() const {
    std::vector<double> result;
    for (std::size_t c = 0; c < memory_.size() / size_of(type_); ++c)
      result.push_back((*this)[std::int64_t(c)]);
    return result;
  }
  [[nodiscard]] bool guards_intact() const {
    return memory_.guards_intact();
  }
  [[nodiscard]] bool untouched() const {
    return memory_.untouched();
  }

private:
  dtype type_;
  guarded_memory memory_;
};

/// A random value for each channel.
inline std::vector<double> random_channels(std::int64_t channels, unsigned seed,
                                           double low, double high) {
  std::mt19937 engine{seed};
  std::uniform_real_distribution<double> distribution{low, high};
  std::vector<double> result(std::size_t(channels), 0.0);
  for (auto& value : result)
    value = distribution(engine);
  return result;
}

/// The value of `array[c]` as it is after rounding to `type`.
inline std::vector<double> rounded(dtype type,
                                   const std::vector<double>& array) {
  return channel_array{type, array}.get();
}

} // namespace syncnorm::test
