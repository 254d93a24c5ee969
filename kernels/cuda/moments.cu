#include "kernels/cuda/prepare_reduction.hpp"
#include "kernels/cuda/reduce.cuh"

namespace syncnorm::cuda {

std::size_t batch_moments_workspace(const tensor_layout& x) {
  return reduction_workspace(x);
}

void batch_moments(const execution& run, const const_tensor_view& x,
                   const moments_view& out, const workspace& scratch) {
  device_scope scope{run, "batch_moments"};
  with_moments(x, out, run_reduction{scope, scratch.data});
}

} // namespace syncnorm::cuda
