#include "kernels/backend.hpp"
#include "kernels/cuda/elementwise.cuh"

namespace syncnorm::cuda {

namespace {

/// The tensors of a call; `x` has no data in evaluation.
struct gradient_tensors {
  operand dy;
  operand x;
  operand dx;
  operand residual_grad;
};

void backward(const device_scope& scope, const tensor_layout& layout,
              const gradient_tensors& tensors,
              const channel_normalizer& channel, const total_sums& sums,
              const std::uint8_t* mask) {
  auto geometry = plan_pass(layout, {tensors.dy, tensors.x, tensors.dx,
                                     tensors.residual_grad});
  with_pass(layout.type, geometry.plan,
            [&]<class T, int Width, memory_format Format>() {
              using pass_type = backward_pass<T, Width, Format>;
              using real = typename pass_type::real;
              pass_type pass{
                  flat_index{geometry.shape, geometry.dense},
                  place<const T>(geometry, tensors.dy),
                  place<const T>(geometry, tensors.x),
                  place<T>(geometry, tensors.dx),
                  place<T>(geometry, tensors.residual_grad),
                  channel_arrays<real>{channel},
                  mask,
                  static_cast<const real*>(sums.sum_dy),
                  static_cast<const real*>(sums.sum_dy_xmu),
                  sums.count == 0 ? real(0) : real(1.0 / double(sums.count))};
              launch(scope, "elementwise_kernel",
                     elementwise_kernel<pass_type>, geometry.plan.blocks,
                     block_threads, pass, geometry.plan);
            });
}

} // namespace

void backward_input(const execution& run, const const_tensor_view& dy,
                    const const_tensor_view& x,
                    const channel_parameters& parameters,
                    const total_sums& sums, const std::uint8_t* mask,
                    const tensor_view& dx, void* residual_grad) {
  device_scope scope{run, "backward_input"};
  channel_normalizer channel;
  channel.mean = parameters.mean;
  channel.spread = parameters.inv_std;
  channel.weight = parameters.weight;
  backward(scope, x.layout(),
           {{dy.data(), dy.sample_stride()},
            {x.data(), x.sample_stride()},
            {dx.data(), dx.sample_stride()},
            {residual_grad, x.sample_stride()}},
           channel, sums, mask);
}

void backward_input_eval(const execution& run, const const_tensor_view& dy,
                         const channel_normalizer& channel,
                         const std::uint8_t* mask, const tensor_view& dx,
                         void* residual_grad) {
  device_scope scope{run, "backward_input_eval"};
  backward(scope, dy.layout(),
           {{dy.data(), dy.sample_stride()},
            {},
            {dx.data(), dx.sample_stride()},
            {residual_grad, dy.sample_stride()}},
           channel, {}, mask);
}

} // namespace syncnorm::cuda
