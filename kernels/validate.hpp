#pragma once

// The checks of arguments, for both backends, before anything is written.

#include "syncnorm/error.hpp"
#include "syncnorm/execution.hpp"
#include "syncnorm/moments.hpp"
#include "syncnorm/tensor_view.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace syncnorm {

/// Throws `error` with the text
/// "<operation>: <argument>: expected <expected>, got <got>".
[[noreturn]] void fail(errc code, std::string_view operation,
                       std::string_view argument, std::string_view expected,
                       std::string_view got);

/// "[8, 64, 3136]": N, C, S.
[[nodiscard]] std::string to_string(const tensor_shape& shape);

/// Throws `dtype_mismatch` for a value that is no dtype.
void check_type(std::string_view operation, std::string_view argument,
                dtype type);

/// Throws `invalid_argument` for a value that is no format.
void check_format(std::string_view operation, std::string_view argument,
                  memory_format format);

/// Throws as `const_tensor_view` does, under the name of `operation`.
void check_layout(std::string_view operation, std::string_view argument,
                  const tensor_layout& layout);

/// The layout that `make_layout` returns, under the name of `operation`.
[[nodiscard]] tensor_layout checked_layout(std::string_view operation,
                                           std::string_view argument,
                                           dtype type,
                                           std::span<const std::int64_t> sizes,
                                           memory_format format, device where);

/// Throws as `const_tensor_view` does for its data, under the name of
/// `operation`.
void check_data(std::string_view operation, std::string_view argument,
                const void* data, const tensor_layout& layout);

/// Throws the error for a tensor on a CUDA device in a build without CUDA
/// kernels.
[[noreturn]] void fail_without_cuda(std::string_view operation,
                                    std::string_view argument,
                                    const device& where);

/// Whether two arrays of `elements` have a byte in common. Null has none.
[[nodiscard]] bool overlap(const void* a, const void* b, std::int64_t elements,
                           dtype type);

/// What an operation reads or writes, under the name of its argument. Null, or
/// 0 bytes: nothing.
struct used_memory {
  std::string_view argument;
  const void* data = nullptr;
  std::size_t bytes = 0;

  /// The elements of a tensor; nothing if there are gaps between its samples,
  /// as other memory may lie there.
  static used_memory of(std::string_view argument,
                        const const_tensor_view& view) {
    return of(argument, view.data(), view.layout());
  }
  static used_memory of(std::string_view argument, const void* data,
                        const tensor_layout& layout);

  /// The mask of a tensor's elements.
  static used_memory of_mask(std::string_view argument, const void* data,
                             const const_tensor_view& view);
};

/// Makes `used_memory` of arrays with one element of a tensor's statistics type
/// for each of its channels.
class channel_memory {
public:
  explicit channel_memory(const const_tensor_view& view);

  used_memory operator()(std::string_view argument, const void* data) const {
    return {argument, data, bytes_};
  }

private:
  std::size_t bytes_;
};

/// The checks of one call of an operation. Each throws `error` that names the
/// operation, the argument, what was expected and what was found.
class call_check {
public:
  /// Checks `run` itself: a device that this build knows, a split into at least
  /// one part. The CUDA backend finds out whether a CUDA device exists.
  call_check(std::string_view operation, const execution& run);

  /// A well-formed tensor in the memory of the execution.
  void tensor(std::string_view argument, const const_tensor_view& view) const;

  /// `view` has shape, dtype and format of `like`.
  void same_layout(std::string_view argument, const const_tensor_view& view,
                   std::string_view like_argument,
                   const const_tensor_view& like) const;

  /// If `view` starts where `like` does, it has the same sample stride.
  void same_stride(std::string_view argument, const const_tensor_view& view,
                   std::string_view like_argument,
                   const const_tensor_view& like) const;

  /// As `same_stride`; without gaps, moreover, `view` overlaps `like` in no
  /// other way: only then is every element read before it is overwritten. With
  /// gaps, the samples of one may lie between those of the other.
  void in_place(std::string_view argument, const const_tensor_view& view,
                std::string_view like_argument,
                const const_tensor_view& like) const;

  /// Not null, aligned to elements of `type`.
  void array(std::string_view argument, const void* data, dtype type) const;

  /// Null, or aligned to elements of `type`.
  void optional_array(std::string_view argument, const void* data,
                      dtype type) const;

  /// Two arrays of `elements` have no byte in common.
  void apart(std::string_view argument, const void* data,
             std::string_view other_argument, const void* other,
             std::int64_t elements, dtype type) const;

  /// Nothing that is written has a byte in common with anything of `others`.
  void apart(std::initializer_list<used_memory> written,
             std::initializer_list<used_memory> others) const;

  /// Neither of the running statistics, if there are any, overlaps the array.
  void apart(std::string_view argument, const void* data,
             const running_view& running, std::int64_t channels,
             dtype type) const;

  /// Two arrays of `elements` are the same or have no byte in common.
  void same_or_apart(std::string_view argument, const void* data,
                     std::string_view other_argument, const void* other,
                     std::int64_t elements, dtype type) const;

  /// Null, or aligned to 8 bytes.
  void mask(std::string_view argument, const void* data) const;

  /// Channels, dtype (float32 or float64), memory, count >= 0; arrays as
  /// `array`, unchecked if `count` is 0.
  void moments(std::string_view argument, const const_moments_view& view) const;

  void memory(std::string_view argument, const device& where) const;

  /// Large enough and aligned; unchecked if `needed` is 0.
  void scratch(const workspace& given, std::size_t needed) const;

  /// eps is finite and not negative.
  void epsilon(std::string_view argument, double eps) const;

  /// A valid eps, a valid mode, a momentum in [0, 1].
  void finalization(const finalize_options& options) const;

  /// Both arrays null, or both as `array` and apart from each other.
  /// @param argument  the name of `running` in the error.
  void running(std::string_view argument, const running_view& running,
               std::int64_t channels, dtype type) const;

  [[noreturn]] void fail(errc code, std::string_view argument,
                         std::string_view expected, std::string_view got) const;

private:
  void aligned(std::string_view argument, const void* data,
               std::size_t alignment) const;

  std::string_view operation_;
  const execution& run_;
};

} // namespace syncnorm
