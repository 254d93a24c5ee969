#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/prepare_pass.hpp"

namespace syncnorm::cuda {

void backward_input(const execution& run, const const_tensor_view& dy,
                    const const_tensor_view& x,
                    const channel_parameters& parameters,
                    const total_sums& sums, const std::uint8_t* mask,
                    const tensor_view& dx, void* residual_grad) {
  device_scope scope{run, "backward_input"};
  with_backward_input(dy, x, parameters, sums, mask, dx, residual_grad,
                      run_elementwise{scope});
}

void backward_input_eval(const execution& run, const const_tensor_view& dy,
                         const channel_normalizer& channel,
                         const std::uint8_t* mask, const tensor_view& dx,
                         void* residual_grad) {
  device_scope scope{run, "backward_input_eval"};
  with_backward_input_eval(dy, channel, mask, dx, residual_grad,
                           run_elementwise{scope});
}

} // namespace syncnorm::cuda
