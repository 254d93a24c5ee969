#pragma once

// The kernel of all elementwise passes.

#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/launch.cuh"

namespace syncnorm::cuda {

template <class Pass>
__global__ void __launch_bounds__(block_threads)
    elementwise_kernel(const __grid_constant__ Pass pass,
                       const __grid_constant__ pass_plan plan) {
  wait_for_earlier_kernels();
  auto thread = int(threadIdx.x);
  run_pass(pass, plan.range_of(blockIdx.x, thread), thread % warpSize);
}

/// Enqueues the kernel.
struct run_elementwise {
  const device_scope& scope;

  template <class Pass>
  void operator()(const Pass& pass, const pass_plan& plan) const {
    launch(scope, "elementwise_kernel", elementwise_kernel<Pass>, plan.blocks,
           block_threads, pass, plan);
  }
};

} // namespace syncnorm::cuda
