#include "kernels/cuda/prepare_reduction.hpp"
#include "kernels/cuda/reduce.cuh"

namespace syncnorm::cuda {

namespace {

void clear(const device_scope& scope, const tensor_layout& x,
           const backward_sums& out) {
  auto bytes = std::size_t(x.shape.channels) * size_of(statistics_type(x.type));
  for (auto* array :
       {out.sum_dy, out.sum_dy_xmu, out.weight_grad, out.bias_grad})
    if (array != nullptr)
      scope.check(cudaMemsetAsync(array, 0, bytes, scope.stream()),
                  "cudaMemsetAsync");
}

} // namespace

std::size_t backward_reduce_workspace(const tensor_layout& x) {
  return reduction_workspace(x);
}

void backward_reduce(const execution& run, const const_tensor_view& dy,
                     const const_tensor_view& x,
                     const channel_parameters& parameters,
                     const std::uint8_t* mask, const backward_sums& out,
                     const workspace& scratch) {
  device_scope scope{run, "backward_reduce"};
  if (x.empty())
    clear(scope, x.layout(), out);
  else
    with_gradients(dy, x, parameters, mask, out,
                   run_reduction{scope, scratch.data});
}

} // namespace syncnorm::cuda
