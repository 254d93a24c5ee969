#pragma once

// The kernel of the elementwise passes, and what their launchers share.

#include "kernels/cuda/alignment.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/launch.cuh"

#include <initializer_list>

namespace syncnorm::cuda {

template <class Pass>
__global__ void __launch_bounds__(block_threads)
    elementwise_kernel(const __grid_constant__ Pass pass,
                       const __grid_constant__ pass_plan plan) {
  auto thread = int(threadIdx.x);
  run_pass(pass, plan.range_of(blockIdx.x, thread), thread % warpSize);
}

/// A tensor of an elementwise operation. Null data: not there.
struct operand {
  const void* data = nullptr;
  std::int64_t sample_stride = 0;
};

/// What the tensors of an elementwise call have in common.
struct pass_geometry {
  tensor_shape tensor;
  extents shape;
  bool dense = true;
  pass_plan plan;
};

[[nodiscard]] inline pass_geometry
plan_pass(const tensor_layout& layout, std::initializer_list<operand> tensors) {
  pass_geometry result;
  result.tensor = layout.shape;
  auto sample = layout.shape.channels * layout.shape.spatial;
  auto width = std::int64_t(vector_bytes / size_of(layout.type));
  auto wide = sample * layout.shape.samples % width == 0;
  for (const auto& tensor : tensors) {
    if (tensor.data == nullptr)
      continue;
    wide = wide && start_aligned({tensor.data});
    if (layout.shape.samples <= 1 || tensor.sample_stride == sample)
      continue;
    result.dense = false;
    wide = wide && tensor.sample_stride % width == 0 && sample % width == 0;
  }
  result.shape = canonical(layout.format, layout.shape, false);
  result.plan = make_pass_plan(result.shape, wide ? int(width) : 1);
  return result;
}

/// The same tensor for the kernel.
template <class T>
[[nodiscard]] gapped<T> place(const pass_geometry& geometry,
                              const operand& tensor) {
  auto sample = geometry.tensor.channels * geometry.tensor.spatial;
  return {static_cast<T*>(const_cast<void*>(tensor.data)),
          tensor.sample_stride - sample};
}

/// Calls `f.template operator()<T, Width, Format>()` for the call's type,
/// width and format.
template <class F>
void with_pass(dtype type, const pass_plan& plan, const F& f) {
  with_element(type, [&](auto element_type) {
    using T = typename decltype(element_type)::type;
    with_width<T>(plan.width, [&](auto width) {
      if (plan.format == memory_format::channels_first)
        f.template operator()<T, width, memory_format::channels_first>();
      else
        f.template operator()<T, width, memory_format::channels_last>();
    });
  });
}

} // namespace syncnorm::cuda
