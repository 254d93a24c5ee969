#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/prepare_pass.hpp"

namespace syncnorm::cuda {

void normalize(const execution& run, const const_tensor_view& x,
               const channel_normalizer& channel, const tensor_view& y,
               const fused_tail& tail) {
  device_scope scope{run, "normalize"};
  with_normalize(x, channel, y, tail, run_elementwise{scope});
}

} // namespace syncnorm::cuda
