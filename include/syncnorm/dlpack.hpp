#pragma once

#include "syncnorm/tensor_view.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

// The caller includes DLPack's header, <dlpack/dlpack.h>: syncnorm itself needs
// it only to be built.
struct DLManagedTensor;

namespace syncnorm {

/// Returns a view of a DLPack tensor's data, without copying or taking over the
/// tensor, which must outlive the view.
///
/// The shape is [N, C] or [N, C, spatial...]. The format is read from the
/// strides: channels-first if the spatial elements of a channel lie densely and
/// the channels one after the other (or strides are null), channels-last if the
/// channels of each spatial element do. There may be gaps between samples. A
/// size of 1 may have any stride. If both formats fit, channels-first is
/// returned, as it is for a tensor without elements whose strides fit neither.
///
/// This is the tensor of DLPack before 1.0, which libtorch and others hand over
/// unless asked for the versioned one: it has no flag for read-only memory, so
/// the caller must know.
///
/// Memory of `kDLCPU` and `kDLCUDAHost` is `cpu`, of `kDLCUDA` and
/// `kDLCUDAManaged` `cuda:device_id`. Types are `kDLFloat` of 16, 32 and 64
/// bits and `kDLBfloat` of 16 bits, one lane.
///
/// @throws error `dtype_mismatch`, `device_mismatch` (a device of another
///         kind, a CUDA device below 0), `shape_mismatch` (fewer than two
///         dimensions, strides of neither format), or `invalid_argument` (a
///         null shape, null or misaligned data, a negative size, no channel,
///         more than 2^63 - 1 bytes).
[[nodiscard]] tensor_view view_of(const DLManagedTensor& tensor);

/// A DLPack tensor that was taken over: its deleter is called when this object
/// is destroyed, on the thread that destroys it.
class dlpack_tensor {
public:
  /// Takes `tensor` over.
  /// @throws error as `view_of`, and `invalid_argument` for null; then the
  ///         tensor still belongs to the caller.
  explicit dlpack_tensor(DLManagedTensor* tensor);

  /// Leaves `other` without a tensor.
  dlpack_tensor(dlpack_tensor&& other) noexcept
      : view_{std::exchange(other.view_, {})},
        tensor_{std::move(other.tensor_)} {}

  /// Leaves `other` without a tensor.
  dlpack_tensor& operator=(dlpack_tensor&& other) noexcept {
    view_ = std::exchange(other.view_, {});
    tensor_ = std::move(other.tensor_);
    return *this;
  }

  /// The tensor; a view without elements if this object was moved from.
  [[nodiscard]] const tensor_view& view() const noexcept {
    return view_;
  }

private:
  struct deleter {
    void operator()(DLManagedTensor* tensor) const noexcept;
  };

  tensor_view view_;
  std::unique_ptr<DLManagedTensor, deleter> tensor_;
};

/// Returns a DLPack tensor of the memory of `view`, for somebody else, who
/// takes it over and calls its deleter, which lets go of `owner`.
///
/// @param owner keeps the memory alive; may be null if something else does.
/// @param sizes `[N, C, spatial...]` of the tensor, whose spatial sizes the
///              view does not know; empty: `[N, C]` if S is 1, else
///              `[N, C, S]`.
/// @throws error `shape_mismatch` if `sizes` are not those of the view.
[[nodiscard]] DLManagedTensor*
to_dlpack(const tensor_view& view, std::shared_ptr<void> owner,
          std::span<const std::int64_t> sizes = {});

} // namespace syncnorm
