#include "kernels/backend.hpp"
#include "kernels/cuda/alignment.hpp"
#include "kernels/cuda/dispatch.hpp"
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

template <class T, int Width>
gradients_of<T, Width>
make_reduction(const const_tensor_view& dy, const const_tensor_view& x,
               const channel_parameters& parameters, const std::uint8_t* mask,
               const backward_sums& out) {
  using real = arithmetic_t<T>;
  gradients_of<T, Width> what;
  what.dy = {static_cast<const T*>(dy.data()), dy.sample_stride()};
  what.x = {static_cast<const T*>(x.data()), x.sample_stride()};
  what.mask = mask;
  what.mean = static_cast<const real*>(parameters.mean);
  what.inv_std = static_cast<const real*>(parameters.inv_std);
  what.sum_dy = static_cast<real*>(out.sum_dy);
  what.sum_dy_xmu = static_cast<real*>(out.sum_dy_xmu);
  what.weight_grad = static_cast<real*>(out.weight_grad);
  what.bias_grad = static_cast<real*>(out.bias_grad);
  return what;
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
    return clear(scope, x.layout(), out);
  auto dense = is_dense(dy.layout()) && is_dense(x.layout());
  auto aligned = start_aligned({dy.data(), x.data()})
                 && stride_aligned(dy.layout()) && stride_aligned(x.layout());
  auto plan = plan_reduction(x.format(), x.shape(), size_of(x.type()), dense,
                             aligned);
  with_element(x.type(), [&](auto type) {
    using T = typename decltype(type)::type;
    with_width<T>(plan.width, [&](auto width) {
      reduce(scope, make_reduction<T, width>(dy, x, parameters, mask, out),
             plan, scratch.data);
    });
  });
}

} // namespace syncnorm::cuda
