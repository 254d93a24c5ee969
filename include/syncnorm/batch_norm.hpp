#pragma once

#include "syncnorm/execution.hpp"
#include "syncnorm/moments.hpp"
#include "syncnorm/tensor_view.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace syncnorm {

/// What `normalize` needs to know about each channel: C elements each, of
/// `statistics_type` of the tensor, on its device.
struct channel_parameters {
  /// E[x], `[C]` of the statistics' type.
  const void* mean = nullptr;
  /// 1/σ, `[C]` of the statistics' type.
  const void* inv_std = nullptr;
  /// Null: weight 1.
  const void* weight = nullptr;
  /// Null: bias 0.
  const void* bias = nullptr;
};

/// What is fused after the normalization: y = relu(normalized + residual).
struct fused_tail {
  /// Added before ReLU; null: nothing. Laid out like the output, with its
  /// sample stride; may be the memory of the output, or of the input if that
  /// has the same sample stride.
  const void* residual = nullptr;
  /// Whether y is clipped below at 0.
  bool relu = false;
  /// Where bit i, `mask[i / 8] >> (i % 8)`, records whether element i (counted
  /// without gaps between samples, in memory order) was positive before ReLU;
  /// `relu_mask_bytes` bytes on the tensor's device, aligned to 8; null: not
  /// kept. Bits after the last element have no meaning. ReLU of NaN is NaN,
  /// which is not positive. Without `relu` it must be null, or the call throws
  /// `invalid_argument`.
  std::uint8_t* mask = nullptr;
};

/// Bytes of a ReLU mask for a tensor of this layout: one bit per element,
/// rounded up to a multiple of 8 bytes.
/// @throws error `invalid_argument` or `dtype_mismatch` for a layout that no
///         tensor can have.
[[nodiscard]] std::size_t relu_mask_bytes(const tensor_layout& layout);

/// Sets y = (x - mean) * inv_std * weight + bias, then the tail.
///
/// @param x, y  the same shape, dtype, format and device; y may be x if the
///              sample strides are equal, but must not overlap it in any other
///              way.
/// @throws error as `batch_moments`.
void normalize(const execution& run, const const_tensor_view& x,
               const channel_parameters& parameters, const tensor_view& y,
               const fused_tail& tail = {});

/// The sums of a backward pass per channel: C elements each of
/// `statistics_type` of the tensor, on its device.
struct backward_sums {
  /// sum(dy)
  void* sum_dy = nullptr;
  /// sum(dy * (x - mean))
  void* sum_dy_xmu = nullptr;
  /// Gradient of the weight, sum(dy * (x - mean)) * inv_std; null: not wanted.
  void* weight_grad = nullptr;
  /// Gradient of the bias, sum(dy); null: not wanted.
  void* bias_grad = nullptr;
};

/// Workspace in bytes that `backward_reduce` needs.
/// @throws error as `batch_moments_workspace`.
[[nodiscard]] std::size_t backward_reduce_workspace(const tensor_layout& x);

/// Sets the sums over this replica's samples and spatial elements, and the
/// gradients of weight and bias. Where `mask` is not null, elements of dy whose
/// bit is not set count as 0. An empty tensor gives zeros.
///
/// @param dy, x the same shape, dtype and format.
/// @param parameters `mean` and, if a weight gradient is wanted, `inv_std`.
/// @param out  arrays that must overlap nothing that is read, and must not
///             overlap each other, except that `bias_grad` may be `sum_dy`.
/// @throws error as `batch_moments`.
void backward_reduce(const execution& run, const const_tensor_view& dy,
                     const const_tensor_view& x,
                     const channel_parameters& parameters,
                     const std::uint8_t* mask, const backward_sums& out,
                     const workspace& scratch);

/// Sets `out` to the sums of `parts`, element by element, along the tree of
/// `merge_moments`: the sums over all replicas, from the sums of each.
///
/// @param parts R >= 1 arrays of `elements` elements of `type`, float32 or
///              float64, on the device of the execution; a null array adds
///              nothing. None may overlap `out`, except that `out` may be the
///              first. On a CUDA device at most 2048.
/// @throws error as `merge_moments`; `invalid_argument` for less than 1
///         element.
void add_arrays(const execution& run, std::span<const void* const> parts,
                std::int64_t elements, dtype type, void* out);

/// Sets `sum_dy_xmu` to 0 for each channel whose variance `eps_mode::clamp` has
/// clamped, recognized by an `inv_std` of 1 / sqrt(eps).
///
/// @param inv_std, sum_dy_xmu  C elements each of `type`, float32 or float64,
///                             on the device of the execution; they do not
///                             overlap.
/// @throws error as `batch_moments`; `invalid_argument` for eps < 0 or not
///         finite.
void clear_clamped(const execution& run, const void* inv_std, double eps,
                   std::int64_t channels, dtype type, void* sum_dy_xmu);

/// Sets `out` to `from` in float32, each element rounded to nearest: statistics
/// that were merged in float64, for the kernels of tensors of narrower types.
///
/// @param from, out  `elements` elements each, on the device of the execution;
///                   they do not overlap.
/// @throws error as `add_arrays`.
void round_array(const execution& run, const double* from,
                 std::int64_t elements, float* out);

/// The sums that `backward_reduce` sets, added over all replicas by a
/// collective.
struct total_sums {
  /// Σ dy over all replicas, `[C]` of the statistics' type.
  const void* sum_dy = nullptr;
  /// Σ dy (x - mean) over all replicas, `[C]` of the statistics' type.
  const void* sum_dy_xmu = nullptr;
  /// Elements of each channel over all replicas: N * S of the whole batch.
  std::int64_t count = 0;
};

/// Sets dx = weight * inv_std * (dy - sum_dy / count
///                               - (x - mean) * inv_std^2 * sum_dy_xmu / count)
/// with dy masked first, as in `backward_reduce`.
///
/// With `eps_mode::clamp` the caller passes `sum_dy_xmu` of zero for channels
/// whose variance was clamped: there inv_std is a constant.
///
/// @param dy, x, dx  the same shape, dtype, format and device; dx may be the
///                 memory of dy or of x, if the sample strides are equal.
/// @param residual_grad  null, or where the masked dy is written: the gradient
///                 of the residual, laid out as dx, with its sample stride; may
///                 be the memory of dy or x if dx is not and the sample strides
///                 are equal.
/// @throws error as `batch_moments`; `invalid_argument` for a `sums.count`
///         below N * S of x.
void backward_input(const execution& run, const const_tensor_view& dy,
                    const const_tensor_view& x,
                    const channel_parameters& parameters,
                    const total_sums& sums, const std::uint8_t* mask,
                    const tensor_view& dx, void* residual_grad = nullptr);

/// Statistics of evaluation: C elements each of `statistics_type` of the
/// tensor, on its device.
struct running_statistics {
  /// The running mean, `[C]` of the statistics' type.
  const void* mean = nullptr;
  /// The running variance, `[C]` of the statistics' type.
  const void* var = nullptr;
};

/// As `normalize`, with mean and variance taken from running statistics:
/// inv_std = 1 / sqrt(var + eps), or 1 / sqrt(max(var, eps)).
/// `parameters.mean` and `.inv_std` are ignored.
/// @throws error as `normalize`; `invalid_argument` for eps < 0 or not finite,
///         or an unknown mode.
void normalize_eval(const execution& run, const const_tensor_view& x,
                    const running_statistics& statistics, double eps,
                    eps_mode mode, const channel_parameters& parameters,
                    const tensor_view& y, const fused_tail& tail = {});

/// The backward pass of `normalize_eval`: dx = weight * inv_std * dy, dy masked
/// first. Gradients of weight and bias come from `backward_reduce` with the
/// running mean and inverse standard deviation. `statistics.mean` is ignored,
/// and may be null.
/// @throws error as `normalize_eval`.
void backward_input_eval(const execution& run, const const_tensor_view& dy,
                         const running_statistics& statistics, double eps,
                         eps_mode mode, const channel_parameters& parameters,
                         const std::uint8_t* mask, const tensor_view& dx,
                         void* residual_grad = nullptr);

/// What the forward pass of the only replica sets and updates: C elements each
/// of `statistics_type` of the tensor, on its device.
struct batch_statistics {
  /// Set to E[x], `[C]` of the statistics' type.
  void* mean = nullptr;
  /// Where 1/σ goes, `[C]` of the statistics' type.
  void* inv_std = nullptr;
  /// Updated, unless null; must not overlap the two above.
  running_view running;
};

/// Workspace in bytes that `batch_norm_forward` needs.
/// @throws error as `batch_moments_workspace`.
[[nodiscard]] std::size_t batch_norm_forward_workspace(const tensor_layout& x);

/// `batch_moments`, `finalize_moments` and `normalize` in one call, for the
/// only replica. The results are the same within rounding. On the CPU, a
/// channels-first tensor is processed some channels at a time, which are still
/// in a cache when they are normalized, unless a mask is kept or this kind of
/// CPU reads the whole tensor again in less time.
///
/// @param x    an empty tensor sets the statistics as `finalize_moments` does
///             for count 0.
/// @param weight, bias  as `channel_parameters`.
/// @param y    may be x, if the sample strides are equal.
/// @throws error as the three operations.
void batch_norm_forward(const execution& run, const const_tensor_view& x,
                        const finalize_options& options,
                        const batch_statistics& statistics, const void* weight,
                        const void* bias, const tensor_view& y,
                        const fused_tail& tail, const workspace& scratch);

/// Workspace in bytes that `batch_norm_backward` needs.
/// @throws error as `batch_moments_workspace`.
[[nodiscard]] std::size_t batch_norm_backward_workspace(const tensor_layout& x);

/// `backward_reduce` and `backward_input` in one call, for the only replica,
/// with the same shortcut as `batch_norm_forward`. It does not know epsilon:
/// after a forward pass with `eps_mode::clamp` call `backward_reduce`,
/// `clear_clamped` and `backward_input` yourself, or the dx of clamped channels
/// is wrong.
///
/// @param dx, residual_grad  as in `backward_input`.
/// @throws error as the two operations.
void batch_norm_backward(const execution& run, const const_tensor_view& dy,
                         const const_tensor_view& x,
                         const channel_parameters& parameters,
                         const std::uint8_t* mask, const backward_sums& out,
                         const tensor_view& dx, void* residual_grad,
                         const workspace& scratch);

} // namespace syncnorm
