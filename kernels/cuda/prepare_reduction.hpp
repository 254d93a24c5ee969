#pragma once

// From the arguments of a call to the reduction and the plan that it runs by;
// `run(what, plan)` then launches it or, in a test, does it on the host.

#include "kernels/backend.hpp"
#include "kernels/cuda/alignment.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/width.hpp"
#include "kernels/dispatch.hpp"

#include <algorithm>
#include <initializer_list>

namespace syncnorm::cuda {

/// How the kernel finds the samples of tensors of that shape.
[[nodiscard]] inline sample_index
samples_of(const extents& shape, std::initializer_list<tensor_layout> layouts) {
  return {divisor{shape.channels * shape.spatial},
          std::ranges::all_of(layouts, is_dense)};
}

/// The same tensor for the kernel.
template <class T>
[[nodiscard]] gapped<const T> place(const const_tensor_view& x) {
  return {static_cast<const T*>(x.data()),
          x.sample_stride() - x.shape().channels * x.shape().spatial};
}

template <class T, class Real, class Run>
void with_moments_of(const const_tensor_view& x, const moments_view& out,
                     const reduce_plan& plan, const Run& run) {
  with_width<T>(plan.width, [&](auto width) {
    auto planes = plan.shape.format == memory_format::channels_first;
    run(moments_of<T, Real, width>{samples_of(plan.shape, {x.layout()}),
                                   place<T>(x), static_cast<Real*>(out.mean),
                                   static_cast<Real*>(out.m2),
                                   planes ? plan.shape.spatial : 1},
        plan);
  });
}

/// Calls `run` with the reduction of `batch_moments`.
template <class Run>
void with_moments(const const_tensor_view& x, const moments_view& out,
                  const Run& run) {
  auto aligned = start_aligned({x.data()}) && stride_aligned(x.layout());
  auto plan = plan_reduction(x.format(), x.shape(), size_of(x.type()),
                             is_dense(x.layout()), aligned);
  with_element(x.type(), [&](auto type) {
    using T = typename decltype(type)::type;
    if (out.type == dtype::float64)
      with_moments_of<T, double>(x, out, plan, run);
    else if constexpr (!std::is_same_v<T, double>)
      with_moments_of<T, float>(x, out, plan, run);
  });
}

/// Calls `run` with the reduction of `backward_reduce`.
template <class Run>
void with_gradients(const const_tensor_view& dy, const const_tensor_view& x,
                    const channel_parameters& parameters,
                    const std::uint8_t* mask, const backward_sums& out,
                    const Run& run) {
  auto dense = is_dense(dy.layout()) && is_dense(x.layout());
  auto aligned = start_aligned({dy.data(), x.data()})
                 && stride_aligned(dy.layout()) && stride_aligned(x.layout());
  auto plan =
      plan_reduction(x.format(), x.shape(), size_of(x.type()), dense, aligned);
  with_element(x.type(), [&](auto type) {
    using T = typename decltype(type)::type;
    using real = arithmetic_t<T>;
    with_width<T>(plan.width, [&](auto width) {
      run(gradients_of<T, width>{samples_of(plan.shape,
                                            {dy.layout(), x.layout()}),
                                 place<T>(dy), place<T>(x), mask,
                                 static_cast<const real*>(parameters.mean),
                                 static_cast<const real*>(parameters.inv_std),
                                 static_cast<real*>(out.sum_dy),
                                 static_cast<real*>(out.sum_dy_xmu),
                                 static_cast<real*>(out.weight_grad),
                                 static_cast<real*>(out.bias_grad)},
          plan);
    });
  });
}

} // namespace syncnorm::cuda
