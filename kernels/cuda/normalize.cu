#include "kernels/backend.hpp"
#include "kernels/cuda/elementwise.cuh"

namespace syncnorm::cuda {

void normalize(const execution& run, const const_tensor_view& x,
               const channel_normalizer& channel, const tensor_view& y,
               const fused_tail& tail) {
  device_scope scope{run, "normalize"};
  operand in{x.data(), x.sample_stride()};
  operand residual{tail.residual, y.sample_stride()};
  operand out{y.data(), y.sample_stride()};
  auto geometry = plan_pass(x.layout(), {in, residual, out});
  with_pass(x.type(), geometry.plan,
            [&]<class T, int Width, memory_format Format>() {
              using pass_type = normalize_pass<T, Width, Format>;
              pass_type pass{flat_index{geometry.shape, geometry.dense},
                             place<const T>(geometry, in),
                             place<const T>(geometry, residual),
                             place<T>(geometry, out),
                             channel_arrays<typename pass_type::real>{channel},
                             tail.mask,
                             tail.relu};
              launch(scope, "elementwise_kernel",
                     elementwise_kernel<pass_type>, geometry.plan.blocks,
                     block_threads, pass, geometry.plan);
            });
}

} // namespace syncnorm::cuda
