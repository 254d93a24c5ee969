#include "syncnorm/device_runtime.hpp"

#include "kernels/backend.hpp"
#include "kernels/validate.hpp"

namespace syncnorm {

device_runtime& cuda_runtime() {
  if constexpr (has_cuda)
    return cuda::runtime();
  fail(errc::device_unavailable, "cuda_runtime", "device", "a CPU device",
       "CUDA, and this build has no CUDA kernels");
}

std::size_t device_runtime::batch_moments_workspace(const tensor_layout& x) {
  return syncnorm::batch_moments_workspace(x);
}

void device_runtime::batch_moments(const execution& run,
                                   const const_tensor_view& x,
                                   moments_view& out,
                                   const workspace& scratch) {
  syncnorm::batch_moments(run, x, out, scratch);
}

void device_runtime::merge_moments(const execution& run,
                                   std::span<const const_moments_view> parts,
                                   moments_view& out) {
  syncnorm::merge_moments(run, parts, out);
}

void device_runtime::finalize_moments(const execution& run,
                                      const const_moments_view& total,
                                      const finalize_options& options,
                                      void* mean, void* inv_std,
                                      const running_view& running) {
  syncnorm::finalize_moments(run, total, options, mean, inv_std, running);
}

void device_runtime::normalize(const execution& run, const const_tensor_view& x,
                               const channel_parameters& parameters,
                               const tensor_view& y) {
  syncnorm::normalize(run, x, parameters, y);
}

std::size_t device_runtime::backward_reduce_workspace(const tensor_layout& x) {
  return syncnorm::backward_reduce_workspace(x);
}

void device_runtime::backward_reduce(const execution& run,
                                     const const_tensor_view& dy,
                                     const const_tensor_view& x,
                                     const channel_parameters& parameters,
                                     const backward_sums& out,
                                     const workspace& scratch) {
  syncnorm::backward_reduce(run, dy, x, parameters, nullptr, out, scratch);
}

void device_runtime::backward_input(const execution& run,
                                    const const_tensor_view& dy,
                                    const const_tensor_view& x,
                                    const channel_parameters& parameters,
                                    const total_sums& sums,
                                    const tensor_view& dx) {
  syncnorm::backward_input(run, dy, x, parameters, sums, nullptr, dx);
}

void device_runtime::add_arrays(const execution& run,
                                std::span<const void* const> parts,
                                std::int64_t elements, dtype type, void* out) {
  syncnorm::add_arrays(run, parts, elements, type, out);
}

void device_runtime::round_array(const execution& run, const double* from,
                                 std::int64_t elements, float* out) {
  syncnorm::round_array(run, from, elements, out);
}

void device_runtime::clear_clamped(const execution& run, const void* inv_std,
                                   double eps, std::int64_t channels,
                                   dtype type, void* sum_dy_xmu) {
  syncnorm::clear_clamped(run, inv_std, eps, channels, type, sum_dy_xmu);
}

} // namespace syncnorm
