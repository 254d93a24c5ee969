#pragma once

#include "syncnorm/device.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace syncnorm {

/// The type of a tensor's elements.
enum class dtype : std::uint8_t {
  float32 = 0,
  float64 = 1,
  float16 = 2,
  bfloat16 = 3,
};

/// Size of one element in bytes.
[[nodiscard]] constexpr std::size_t size_of(dtype type) noexcept {
  return type == dtype::float64 ? 8 : type == dtype::float32 ? 4 : 2;
}

/// The type of the statistics and affine parameters that go with tensors of
/// `type`: float64 for float64, float32 for all others.
[[nodiscard]] constexpr dtype statistics_type(dtype type) noexcept {
  return type == dtype::float64 ? dtype::float64 : dtype::float32;
}

/// Returns `"float32"`, `"float64"`, `"float16"` or `"bfloat16"`.
[[nodiscard]] std::string to_string(dtype type);

/// The maximum number of channels of a tensor: far more than any memory holds,
/// but few enough that no workspace size overflows.
inline constexpr std::int64_t max_channels = std::int64_t{1} << 48;

/// How one sample lies in memory.
enum class memory_format : std::uint8_t {
  /// `[C, S]`: the spatial elements of one channel are neighbours (NCHW).
  channels_first = 0,
  /// `[S, C]`: the channels of one spatial element are neighbours (NHWC).
  channels_last = 1,
};

/// Returns `"channels_first"` or `"channels_last"`.
[[nodiscard]] std::string to_string(memory_format format);

/// The shape of an activation tensor as batch normalization sees it: N samples
/// of C channels of S spatial elements each. Element (n, c, s) lies
/// `n * sample_stride + c * S + s` elements after the first for
/// `channels_first`, and `n * sample_stride + s * C + c` for `channels_last`.
struct tensor_shape {
  /// N.
  std::int64_t samples = 0;
  /// C.
  std::int64_t channels = 0;
  /// S.
  std::int64_t spatial = 1;

  /// Elements of each channel: N * S.
  [[nodiscard]] constexpr std::int64_t per_channel() const noexcept {
    return samples * spatial;
  }

  friend bool operator==(const tensor_shape&, const tensor_shape&) = default;
};

/// Everything about a tensor except its memory.
struct tensor_layout {
  /// The type of the elements.
  dtype type = dtype::float32;
  /// How many elements there are.
  tensor_shape shape;
  /// In which order.
  memory_format format = memory_format::channels_first;
  /// Elements from one sample to the next; at least `C * S`.
  std::int64_t sample_stride = 0;
  /// On which device.
  device where;

  friend bool operator==(const tensor_layout&, const tensor_layout&) = default;
};

/// Returns the layout of a tensor whose samples follow each other without a
/// gap.
/// @param sizes `[N, C]` or `[N, C, spatial...]`, in elements, whatever the
///              order in memory; any size may be 0 except C.
/// @throws error `dtype_mismatch` for an unknown `type`; `invalid_argument` for
///         an unknown `format`, fewer than two sizes, a negative size, no
///         channel or more than `max_channels`, or a tensor, or with N = 0 a
///         sample, of more than 2^63 - 1 bytes.
[[nodiscard]] tensor_layout
make_layout(dtype type, std::span<const std::int64_t> sizes,
            memory_format format = memory_format::channels_first,
            device where = {});

/// Somebody else's tensor, for reading. A view is a value of a few words; it
/// owns nothing and the memory must outlive it.
class const_tensor_view {
public:
  const_tensor_view() = default;

  /// @param data   the first element; null only for a tensor without elements.
  /// @param layout what lies there.
  /// @throws error `dtype_mismatch` for an unknown type; `invalid_argument` if
  ///         the format is unknown, if `data` is null or not aligned to the
  ///         element size, if a size is negative, C is 0 or above
  ///         `max_channels`, if the sample stride is smaller than a sample, or
  ///         if the tensor, gaps included, or with N = 0 a sample, has more
  ///         than 2^63 - 1 bytes.
  const_tensor_view(const void* data, const tensor_layout& layout);

  /// The first element.
  [[nodiscard]] const void* data() const noexcept {
    return data_;
  }
  /// Type, shape, format and place.
  [[nodiscard]] const tensor_layout& layout() const noexcept {
    return layout_;
  }
  /// The type of the elements.
  [[nodiscard]] dtype type() const noexcept {
    return layout_.type;
  }
  /// N, C, S.
  [[nodiscard]] const tensor_shape& shape() const noexcept {
    return layout_.shape;
  }
  /// In which order they lie.
  [[nodiscard]] memory_format format() const noexcept {
    return layout_.format;
  }
  /// Elements from one sample to the next.
  [[nodiscard]] std::int64_t sample_stride() const noexcept {
    return layout_.sample_stride;
  }
  /// On which device.
  [[nodiscard]] const device& where() const noexcept {
    return layout_.where;
  }
  /// Elements in all: N * C * S.
  [[nodiscard]] std::int64_t size() const noexcept {
    return layout_.shape.per_channel() * layout_.shape.channels;
  }
  /// Whether there are no elements.
  [[nodiscard]] bool empty() const noexcept {
    return size() == 0;
  }

protected:
  /// The first element.
  const void* data_ = nullptr;
  /// Type, shape, format and place.
  tensor_layout layout_;
};

/// Somebody else's tensor, for writing.
class tensor_view : public const_tensor_view {
public:
  tensor_view() = default;

  /// As for `const_tensor_view`.
  tensor_view(void* data, const tensor_layout& layout);

  /// The first element, to be written.
  [[nodiscard]] void* data() const noexcept {
    return const_cast<void*>(data_);
  }
};

} // namespace syncnorm
