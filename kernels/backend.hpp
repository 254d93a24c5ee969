#pragma once

// The seam between the front and the two backends. The functions of the public
// headers check their arguments (kernels/validate.hpp), then call the function
// of the same name here for the execution's device. So everything below may
// rely on what the public documentation requires:
//
// - views are well-formed: 1 <= C <= 2^48, N, S >= 0, sample stride >= C * S, a
//   data pointer that is aligned to the element and not null unless N * S is 0;
// - shapes, formats and dtypes fit each other; parameters, statistics and sums
//   are of the dtype that the operation documents, aligned to it, not null
//   where they are required;
// - everything lies on `run.where`; the workspace is large enough and aligned;
// - eps is finite and not negative, momentum is in [0, 1];
// - `batch_moments` and the elementwise operations are not called for N * S = 0
//   (the front sets `out.count`); `backward_reduce` is, and sets zeros.
// - `out.count` of moments is set by the front, the backend writes the arrays;
//   parts of count 0 may have null arrays, and not all parts are of count 0;
// - masks are aligned to 8 bytes; residual and residual_grad have the sample
//   stride of the output beside them; `sums.count` is at least N * S.
//
// The functions of `cuda` themselves check, first of all, what only a CUDA
// runtime can know (does the stream belong to the device, did a launch fail).

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/device_runtime.hpp"
#include "syncnorm/execution.hpp"
#include "syncnorm/moments.hpp"
#include "syncnorm/tensor_view.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace syncnorm {

[[nodiscard]] inline bool on_cpu(const execution& run) {
  return run.where.type == device_type::cpu;
}

/// How each channel is normalized: in training by an inverse standard deviation
/// that the caller gives, in evaluation by one made from a running variance, so
/// that evaluation needs no kernel of its own. Each array has C elements of the
/// tensor's `statistics_type`.
struct channel_normalizer {
  /// Null only in the backward pass of evaluation.
  const void* mean = nullptr;
  /// inv_std itself, or, if `is_variance`, the variance to make it from.
  const void* spread = nullptr;
  bool is_variance = false;
  double eps = 0;
  eps_mode mode = eps_mode::plus;
  /// Null: weight 1.
  const void* weight = nullptr;
  /// Null: bias 0.
  const void* bias = nullptr;
};

} // namespace syncnorm

namespace syncnorm::cpu {

[[nodiscard]] std::size_t batch_moments_workspace(const tensor_layout& x);

void batch_moments(const execution& run, const const_tensor_view& x,
                   const moments_view& out, const workspace& scratch);

/// At least one part has a count above 0. `out.count` must not be read.
void merge_moments(const execution& run,
                   std::span<const const_moments_view> parts,
                   const moments_view& out);

void finalize_moments(const execution& run, const const_moments_view& total,
                      const finalize_options& options, void* mean,
                      void* inv_std, const running_view& running);

/// `normalize` and `normalize_eval`.
/// @param upcoming  elements from each one of x to one that the caller reads
///                  next, which is prefetched meanwhile where the output goes
///                  past the caches. 0: x itself.
void normalize(const execution& run, const const_tensor_view& x,
               const channel_normalizer& channel, const tensor_view& y,
               const fused_tail& tail, std::int64_t upcoming = 0);

/// The arguments of `backward_input`.
struct backward_input_call {
  const_tensor_view dy;
  const_tensor_view x;
  channel_parameters parameters;
  total_sums sums;
  const std::uint8_t* mask = nullptr;
  tensor_view dx;
  void* residual_grad = nullptr;
};

[[nodiscard]] std::size_t backward_reduce_workspace(const tensor_layout& x);

/// @param beside  an operation that is also done, while the reduction waits for
///                memory: on planes, without a mask, with an output written
///                past the caches; null: none.
void backward_reduce(const execution& run, const const_tensor_view& dy,
                     const const_tensor_view& x,
                     const channel_parameters& parameters,
                     const std::uint8_t* mask, const backward_sums& out,
                     const workspace& scratch,
                     const backward_input_call* beside = nullptr);

void backward_input(const execution& run, const backward_input_call& call);

/// dx = weight * inv_std * dy. `channel.mean` and `.bias` are ignored.
void backward_input_eval(const execution& run, const const_tensor_view& dy,
                         const channel_normalizer& channel,
                         const std::uint8_t* mask, const tensor_view& dx,
                         void* residual_grad);

/// At least one part. Null parts add nothing.
void add_arrays(const execution& run, std::span<const void* const> parts,
                std::int64_t elements, dtype type, void* out);

void round_array(const execution& run, const double* from,
                 std::int64_t elements, float* out);

void clear_clamped(const execution& run, const void* inv_std, double eps,
                   std::int64_t channels, dtype type, void* sum_dy_xmu);

[[nodiscard]] std::size_t batch_norm_forward_workspace(const tensor_layout& x);

/// Not called for N * S = 0.
void batch_norm_forward(const execution& run, const const_tensor_view& x,
                        const finalize_options& options,
                        const batch_statistics& statistics, const void* weight,
                        const void* bias, const tensor_view& y,
                        const fused_tail& tail, const workspace& scratch);

[[nodiscard]] std::size_t batch_norm_backward_workspace(const tensor_layout& x);

/// Not called for N * S = 0.
void batch_norm_backward(const execution& run, const const_tensor_view& dy,
                         const const_tensor_view& x,
                         const channel_parameters& parameters,
                         const std::uint8_t* mask, const backward_sums& out,
                         const tensor_view& dx, void* residual_grad,
                         const workspace& scratch);

} // namespace syncnorm::cpu

// The same functions for CUDA devices, except the whole passes; defined in a
// build with CUDA.
namespace syncnorm::cuda {

/// CUDA devices that the runtime shows; 0 where there is no driver. Does not
/// throw.
[[nodiscard]] int device_count() noexcept;

/// The same object each time.
[[nodiscard]] device_runtime& runtime();

[[nodiscard]] std::size_t batch_moments_workspace(const tensor_layout& x);

void batch_moments(const execution& run, const const_tensor_view& x,
                   const moments_view& out, const workspace& scratch);

void merge_moments(const execution& run,
                   std::span<const const_moments_view> parts,
                   const moments_view& out);

void finalize_moments(const execution& run, const const_moments_view& total,
                      const finalize_options& options, void* mean,
                      void* inv_std, const running_view& running);

void normalize(const execution& run, const const_tensor_view& x,
               const channel_normalizer& channel, const tensor_view& y,
               const fused_tail& tail);

[[nodiscard]] std::size_t backward_reduce_workspace(const tensor_layout& x);

void backward_reduce(const execution& run, const const_tensor_view& dy,
                     const const_tensor_view& x,
                     const channel_parameters& parameters,
                     const std::uint8_t* mask, const backward_sums& out,
                     const workspace& scratch);

void backward_input(const execution& run, const const_tensor_view& dy,
                    const const_tensor_view& x,
                    const channel_parameters& parameters,
                    const total_sums& sums, const std::uint8_t* mask,
                    const tensor_view& dx, void* residual_grad);

void backward_input_eval(const execution& run, const const_tensor_view& dy,
                         const channel_normalizer& channel,
                         const std::uint8_t* mask, const tensor_view& dx,
                         void* residual_grad);

void add_arrays(const execution& run, std::span<const void* const> parts,
                std::int64_t elements, dtype type, void* out);

void round_array(const execution& run, const double* from,
                 std::int64_t elements, float* out);

void clear_clamped(const execution& run, const void* inv_std, double eps,
                   std::int64_t channels, dtype type, void* sum_dy_xmu);

} // namespace syncnorm::cuda

namespace syncnorm {

/// True in a build with the CUDA kernels. Used with `if constexpr`, so that a
/// build without them refers to no function of `cuda`.
#ifdef SYNCNORM_HAS_CUDA
inline constexpr bool has_cuda = true;
#else
inline constexpr bool has_cuda = false;
#endif

} // namespace syncnorm
