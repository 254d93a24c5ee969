#pragma once

// The checks of the arguments of the operations of `batch_norm.hpp`.

#include "kernels/backend.hpp"
#include "kernels/validate.hpp"
#include "syncnorm/batch_norm.hpp"

#include <cstdint>
#include <initializer_list>

namespace syncnorm {

/// Weight and bias, which may be null.
void check_affine(const call_check& check, const channel_parameters& parameters,
                  dtype type);

/// The arguments of `normalize` and `normalize_eval` for each element.
void check_normalize(const call_check& check, const const_tensor_view& x,
                     const tensor_view& y, const fused_tail& tail);

/// All of a workspace, since the kernels may use more than they need; none of
/// it if `x` has no elements.
[[nodiscard]] used_memory memory_of(const workspace& scratch,
                                    const const_tensor_view& x);

/// What normalization writes lies apart from its inputs; `check_normalize` has
/// compared y with x and the residual.
void check_written(const call_check& check, const const_tensor_view& x,
                   const tensor_view& y, const fused_tail& tail,
                   std::initializer_list<used_memory> per_channel);

/// What the inverse standard deviation of evaluation is made from.
[[nodiscard]] channel_normalizer
check_statistics(const call_check& check, const running_statistics& statistics,
                 double eps, eps_mode mode,
                 const channel_parameters& parameters, dtype type);

/// The arguments of `backward_reduce`.
void check_reduce(const call_check& check, const const_tensor_view& dy,
                  const const_tensor_view& x,
                  const channel_parameters& parameters,
                  const std::uint8_t* mask, const backward_sums& out);

/// What a reduction writes lies apart from what it reads.
void check_reduced(const call_check& check, const const_tensor_view& dy,
                   const const_tensor_view& x,
                   const channel_parameters& parameters,
                   const std::uint8_t* mask, const backward_sums& out,
                   const workspace& scratch);

/// What is written for the input's gradient lies apart from what is read for
/// each channel and from the mask.
void check_gradient_written(const call_check& check, const tensor_view& dx,
                            const void* residual_grad, const std::uint8_t* mask,
                            std::initializer_list<used_memory> per_channel);

/// The arguments of `backward_input` and `backward_input_eval` for each
/// element, except x.
void check_input_gradient(const call_check& check, const const_tensor_view& dy,
                          const std::uint8_t* mask, const tensor_view& dx,
                          const void* residual_grad);

/// Checks x as `check_input_gradient` checks dy.
void check_input(const call_check& check, const const_tensor_view& x,
                 const tensor_view& dx, const void* residual_grad);

/// The sums over all replicas.
void check_sums(const call_check& check, const total_sums& sums,
                const const_tensor_view& x, dtype type);

} // namespace syncnorm
