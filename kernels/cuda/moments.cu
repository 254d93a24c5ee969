#include "kernels/backend.hpp"
#include "kernels/cuda/alignment.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/reduce.cuh"

namespace syncnorm::cuda {

namespace {

template <class T, class Real>
void batch_moments_of(const device_scope& scope, const const_tensor_view& x,
                      const moments_view& out, const reduce_plan& plan,
                      void* scratch) {
  with_width<T>(plan.width, [&](auto width) {
    moments_of<T, Real, width> what;
    what.x = {static_cast<const T*>(x.data()), x.sample_stride()};
    what.mean = static_cast<Real*>(out.mean);
    what.m2 = static_cast<Real*>(out.m2);
    what.channel_stride =
        plan.shape.format == memory_format::channels_first
            ? plan.shape.spatial
            : 1;
    reduce(scope, what, plan, scratch);
  });
}

} // namespace

std::size_t batch_moments_workspace(const tensor_layout& x) {
  return reduction_workspace(x);
}

void batch_moments(const execution& run, const const_tensor_view& x,
                   const moments_view& out, const workspace& scratch) {
  device_scope scope{run, "batch_moments"};
  auto aligned = start_aligned({x.data()}) && stride_aligned(x.layout());
  auto plan = plan_reduction(x.format(), x.shape(), size_of(x.type()),
                             is_dense(x.layout()), aligned);
  with_element(x.type(), [&](auto type) {
    using T = typename decltype(type)::type;
    if (out.type == dtype::float64)
      batch_moments_of<T, double>(scope, x, out, plan, scratch.data);
    else if constexpr (!std::is_same_v<T, double>)
      batch_moments_of<T, float>(scope, x, out, plan, scratch.data);
  });
}

} // namespace syncnorm::cuda
