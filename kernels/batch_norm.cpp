#include "syncnorm/batch_norm.hpp"

#include "kernels/backend.hpp"
#include "kernels/batch_norm_checks.hpp"

namespace syncnorm {

namespace {

using memory = used_memory;

void run_normalize(const execution& run, const const_tensor_view& x,
                   const channel_normalizer& channel, const tensor_view& y,
                   const fused_tail& tail) {
  if (x.empty())
    return;
  if (on_cpu(run))
    cpu::normalize(run, x, channel, y, tail);
  else if constexpr (has_cuda)
    cuda::normalize(run, x, channel, y, tail);
}

} // namespace

std::size_t relu_mask_bytes(const tensor_layout& layout) {
  check_layout("relu_mask_bytes", "layout", layout);
  auto elements = layout.shape.per_channel() * layout.shape.channels;
  return (std::size_t(elements) + 63) / 64 * 8;
}

void normalize(const execution& run, const const_tensor_view& x,
               const channel_parameters& parameters, const tensor_view& y,
               const fused_tail& tail) {
  call_check check{"normalize", run};
  check_normalize(check, x, y, tail);
  auto type = statistics_type(x.type());
  check.array("parameters.mean", parameters.mean, type);
  check.array("parameters.inv_std", parameters.inv_std, type);
  check_affine(check, parameters, type);
  channel_memory of{x};
  check_written(check, x, y, tail,
                {of("parameters.mean", parameters.mean),
                 of("parameters.inv_std", parameters.inv_std),
                 of("parameters.weight", parameters.weight),
                 of("parameters.bias", parameters.bias)});
  run_normalize(run, x,
                {parameters.mean, parameters.inv_std, false, 0, eps_mode::plus,
                 parameters.weight, parameters.bias},
                y, tail);
}

void normalize_eval(const execution& run, const const_tensor_view& x,
                    const running_statistics& statistics, double eps,
                    eps_mode mode, const channel_parameters& parameters,
                    const tensor_view& y, const fused_tail& tail) {
  call_check check{"normalize_eval", run};
  check_normalize(check, x, y, tail);
  auto type = statistics_type(x.type());
  check.array("statistics.mean", statistics.mean, type);
  auto channel =
      check_statistics(check, statistics, eps, mode, parameters, type);
  channel_memory of{x};
  check_written(check, x, y, tail,
                {of("statistics.mean", statistics.mean),
                 of("statistics.var", statistics.var),
                 of("parameters.weight", parameters.weight),
                 of("parameters.bias", parameters.bias)});
  run_normalize(run, x, channel, y, tail);
}

std::size_t backward_reduce_workspace(const tensor_layout& x) {
  check_layout("backward_reduce_workspace", "x", x);
  if (x.where.type == device_type::cpu)
    return cpu::backward_reduce_workspace(x);
  if constexpr (has_cuda)
    return cuda::backward_reduce_workspace(x);
  fail_without_cuda("backward_reduce_workspace", "x.where", x.where);
}

void backward_reduce(const execution& run, const const_tensor_view& dy,
                     const const_tensor_view& x,
                     const channel_parameters& parameters,
                     const std::uint8_t* mask, const backward_sums& out,
                     const workspace& scratch) {
  call_check check{"backward_reduce", run};
  check_reduce(check, dy, x, parameters, mask, out);
  check.scratch(scratch, x.empty() ? 0 : backward_reduce_workspace(x.layout()));
  check_reduced(check, dy, x, parameters, mask, out, scratch);
  if (on_cpu(run))
    cpu::backward_reduce(run, dy, x, parameters, mask, out, scratch);
  else if constexpr (has_cuda)
    cuda::backward_reduce(run, dy, x, parameters, mask, out, scratch);
}

void backward_input(const execution& run, const const_tensor_view& dy,
                    const const_tensor_view& x,
                    const channel_parameters& parameters,
                    const total_sums& sums, const std::uint8_t* mask,
                    const tensor_view& dx, void* residual_grad) {
  call_check check{"backward_input", run};
  check_input_gradient(check, dy, mask, dx, residual_grad);
  check.tensor("x", x);
  check.same_layout("x", x, "dy", dy);
  check_input(check, x, dx, residual_grad);
  auto type = statistics_type(x.type());
  check.array("parameters.mean", parameters.mean, type);
  check.array("parameters.inv_std", parameters.inv_std, type);
  check.optional_array("parameters.weight", parameters.weight, type);
  check_sums(check, sums, x, type);
  channel_memory of{x};
  check_gradient_written(check, dx, residual_grad, mask,
                         {of("parameters.mean", parameters.mean),
                          of("parameters.inv_std", parameters.inv_std),
                          of("parameters.weight", parameters.weight),
                          of("sums.sum_dy", sums.sum_dy),
                          of("sums.sum_dy_xmu", sums.sum_dy_xmu)});
  if (x.empty())
    return;
  if (on_cpu(run))
    cpu::backward_input(run,
                        {dy, x, parameters, sums, mask, dx, residual_grad});
  else if constexpr (has_cuda)
    cuda::backward_input(run, dy, x, parameters, sums, mask, dx, residual_grad);
}

void backward_input_eval(const execution& run, const const_tensor_view& dy,
                         const running_statistics& statistics, double eps,
                         eps_mode mode, const channel_parameters& parameters,
                         const std::uint8_t* mask, const tensor_view& dx,
                         void* residual_grad) {
  call_check check{"backward_input_eval", run};
  check_input_gradient(check, dy, mask, dx, residual_grad);
  auto channel = check_statistics(check, statistics, eps, mode, parameters,
                                  statistics_type(dy.type()));
  channel_memory of{dy};
  check_gradient_written(check, dx, residual_grad, mask,
                         {of("statistics.var", statistics.var),
                          of("parameters.weight", parameters.weight)});
  if (dy.empty())
    return;
  if (on_cpu(run))
    cpu::backward_input_eval(run, dy, channel, mask, dx, residual_grad);
  else if constexpr (has_cuda)
    cuda::backward_input_eval(run, dy, channel, mask, dx, residual_grad);
}

std::size_t batch_norm_forward_workspace(const tensor_layout& x) {
  check_layout("batch_norm_forward_workspace", "x", x);
  if (x.where.type == device_type::cpu)
    return cpu::batch_norm_forward_workspace(x);
  if constexpr (has_cuda)
    return cuda::batch_moments_workspace(x);
  fail_without_cuda("batch_norm_forward_workspace", "x.where", x.where);
}

void batch_norm_forward(const execution& run, const const_tensor_view& x,
                        const finalize_options& options,
                        const batch_statistics& statistics, const void* weight,
                        const void* bias, const tensor_view& y,
                        const fused_tail& tail, const workspace& scratch) {
  call_check check{"batch_norm_forward", run};
  check_normalize(check, x, y, tail);
  check.finalization(options);
  auto type = statistics_type(x.type());
  check.array("statistics.mean", statistics.mean, type);
  check.array("statistics.inv_std", statistics.inv_std, type);
  check.running("statistics.running", statistics.running, x.shape().channels,
                type);
  check.optional_array("weight", weight, type);
  check.optional_array("bias", bias, type);
  check.scratch(scratch,
                x.empty() ? 0 : batch_norm_forward_workspace(x.layout()));
  channel_memory of{x};
  auto mean = of("statistics.mean", statistics.mean);
  auto inv_std = of("statistics.inv_std", statistics.inv_std);
  auto running_mean = of("statistics.running.mean", statistics.running.mean);
  auto running_var = of("statistics.running.var", statistics.running.var);
  auto used = memory_of(scratch, x);
  check_written(check, x, y, tail, {of("weight", weight), of("bias", bias)});
  check.apart({mean, inv_std, running_mean, running_var, used},
              {memory::of("x", x), memory::of("y", y),
               memory::of("tail.residual", tail.residual, y.layout()),
               memory::of_mask("tail.mask", tail.mask, y), of("weight", weight),
               of("bias", bias)});
  check.apart({inv_std, used}, {mean});
  check.apart({mean, inv_std, used}, {running_mean, running_var});
  check.apart({used}, {inv_std});
  if (on_cpu(run) && !x.empty())
    return cpu::batch_norm_forward(run, x, options, statistics, weight, bias, y,
                                   tail, scratch);
  moments_view moments{
      0,    statistics.mean, statistics.inv_std, x.shape().channels,
      type, x.where()};
  batch_moments(run, x, moments, scratch);
  finalize_moments(run, moments, options, statistics.mean, statistics.inv_std,
                   statistics.running);
  normalize(run, x, {statistics.mean, statistics.inv_std, weight, bias}, y,
            tail);
}

std::size_t batch_norm_backward_workspace(const tensor_layout& x) {
  check_layout("batch_norm_backward_workspace", "x", x);
  if (x.where.type == device_type::cpu)
    return cpu::batch_norm_backward_workspace(x);
  if constexpr (has_cuda)
    return cuda::backward_reduce_workspace(x);
  fail_without_cuda("batch_norm_backward_workspace", "x.where", x.where);
}

void batch_norm_backward(const execution& run, const const_tensor_view& dy,
                         const const_tensor_view& x,
                         const channel_parameters& parameters,
                         const std::uint8_t* mask, const backward_sums& out,
                         const tensor_view& dx, void* residual_grad,
                         const workspace& scratch) {
  call_check check{"batch_norm_backward", run};
  check_reduce(check, dy, x, parameters, mask, out);
  check_input_gradient(check, dy, mask, dx, residual_grad);
  check_input(check, x, dx, residual_grad);
  auto type = statistics_type(x.type());
  check.array("parameters.inv_std", parameters.inv_std, type);
  check.optional_array("parameters.weight", parameters.weight, type);
  check.scratch(scratch,
                x.empty() ? 0 : batch_norm_backward_workspace(x.layout()));
  channel_memory of{x};
  auto mean = of("parameters.mean", parameters.mean);
  auto inv_std = of("parameters.inv_std", parameters.inv_std);
  auto weight = of("parameters.weight", parameters.weight);
  check_reduced(check, dy, x, parameters, mask, out, scratch);
  check_gradient_written(check, dx, residual_grad, mask,
                         {mean, inv_std, weight});
  check.apart({of("out.sum_dy", out.sum_dy),
               of("out.sum_dy_xmu", out.sum_dy_xmu),
               of("out.weight_grad", out.weight_grad),
               of("out.bias_grad", out.bias_grad), memory_of(scratch, x)},
              {inv_std, weight, memory::of("dx", dx),
               memory::of("residual_grad", residual_grad, dx.layout())});
  if (on_cpu(run) && !x.empty())
    return cpu::batch_norm_backward(run, dy, x, parameters, mask, out, dx,
                                    residual_grad, scratch);
  backward_reduce(run, dy, x, parameters, mask, out, scratch);
  backward_input(run, dy, x, parameters,
                 {out.sum_dy, out.sum_dy_xmu, x.shape().per_channel()}, mask,
                 dx, residual_grad);
}

} // namespace syncnorm
