#include "kernels/batch_norm_checks.hpp"

#include "syncnorm/detail/check_in_place.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace syncnorm {

namespace {

using memory = used_memory;

void check_residual(const call_check& check, const const_tensor_view& x,
                    const const_tensor_view& y, const void* residual) {
  check.optional_array("tail.residual", residual, x.type());
  if (residual == nullptr)
    return;
  const_tensor_view added{residual, y.layout()};
  check.same_stride("tail.residual", added, "x", x);
  check.in_place("tail.residual", added, "y", y);
}

/// The bias's gradient is `sum_dy`, and may be the same array.
void check_sums_apart(const call_check& check, const backward_sums& out,
                      const channel_memory& of) {
  auto sum_dy = of("out.sum_dy", out.sum_dy);
  auto sum_dy_xmu = of("out.sum_dy_xmu", out.sum_dy_xmu);
  auto weight_grad = of("out.weight_grad", out.weight_grad);
  auto bias_grad = of("out.bias_grad", out.bias_grad);
  check.apart({sum_dy_xmu, weight_grad}, {sum_dy});
  check.apart({weight_grad}, {sum_dy_xmu});
  check.apart({bias_grad}, {sum_dy_xmu, weight_grad});
  if (out.bias_grad != out.sum_dy)
    check.apart({bias_grad}, {sum_dy});
}

} // namespace

void check_affine(const call_check& check, const channel_parameters& parameters,
                  dtype type) {
  check.optional_array("parameters.weight", parameters.weight, type);
  check.optional_array("parameters.bias", parameters.bias, type);
}

void check_normalize(const call_check& check, const const_tensor_view& x,
                     const tensor_view& y, const fused_tail& tail) {
  check.tensor("x", x);
  check.tensor("y", y);
  check.same_layout("y", y, "x", x);
  check.in_place("y", y, "x", x);
  check_residual(check, x, y, tail.residual);
  check.mask("tail.mask", tail.mask);
  if (tail.mask != nullptr && !tail.relu)
    check.fail(errc::invalid_argument, "tail.mask", "null without ReLU",
               "a pointer");
}

memory memory_of(const workspace& scratch, const const_tensor_view& x) {
  return {"scratch", scratch.data, x.empty() ? 0 : scratch.bytes};
}

void check_written(const call_check& check, const const_tensor_view& x,
                   const tensor_view& y, const fused_tail& tail,
                   std::initializer_list<memory> per_channel) {
  auto out = memory::of("y", y);
  auto mask = memory::of_mask("tail.mask", tail.mask, y);
  check.apart({mask}, {out, memory::of("x", x),
                       memory::of("tail.residual", tail.residual, y.layout())});
  check.apart({out, mask}, per_channel);
}

channel_normalizer check_statistics(const call_check& check,
                                    const running_statistics& statistics,
                                    double eps, eps_mode mode,
                                    const channel_parameters& parameters,
                                    dtype type) {
  check.array("statistics.var", statistics.var, type);
  check.epsilon("eps", eps);
  if (mode > eps_mode::clamp)
    check.fail(errc::invalid_argument, "mode", "plus or clamp",
               std::to_string(int(mode)));
  check_affine(check, parameters, type);
  return {statistics.mean,   statistics.var, true, eps, mode,
          parameters.weight, parameters.bias};
}

void check_reduce(const call_check& check, const const_tensor_view& dy,
                  const const_tensor_view& x,
                  const channel_parameters& parameters,
                  const std::uint8_t* mask, const backward_sums& out) {
  check.tensor("x", x);
  check.tensor("dy", dy);
  check.same_layout("dy", dy, "x", x);
  auto type = statistics_type(x.type());
  check.array("parameters.mean", parameters.mean, type);
  if (out.weight_grad != nullptr)
    check.array("parameters.inv_std", parameters.inv_std, type);
  check.mask("mask", mask);
  check.array("out.sum_dy", out.sum_dy, type);
  check.array("out.sum_dy_xmu", out.sum_dy_xmu, type);
  check.optional_array("out.weight_grad", out.weight_grad, type);
  check.optional_array("out.bias_grad", out.bias_grad, type);
  check_sums_apart(check, out, channel_memory{x});
}

void check_reduced(const call_check& check, const const_tensor_view& dy,
                   const const_tensor_view& x,
                   const channel_parameters& parameters,
                   const std::uint8_t* mask, const backward_sums& out,
                   const workspace& scratch) {
  channel_memory of{x};
  auto sum_dy = of("out.sum_dy", out.sum_dy);
  auto sum_dy_xmu = of("out.sum_dy_xmu", out.sum_dy_xmu);
  auto weight_grad = of("out.weight_grad", out.weight_grad);
  auto bias_grad = of("out.bias_grad", out.bias_grad);
  auto used = memory_of(scratch, x);
  check.apart({sum_dy, sum_dy_xmu, weight_grad, bias_grad, used},
              {memory::of("x", x), memory::of("dy", dy),
               memory::of_mask("mask", mask, x),
               of("parameters.mean", parameters.mean),
               of("parameters.inv_std",
                  out.weight_grad == nullptr ? nullptr : parameters.inv_std)});
  check.apart({used}, {sum_dy, sum_dy_xmu, weight_grad, bias_grad});
}

void check_gradient_written(const call_check& check, const tensor_view& dx,
                            const void* residual_grad, const std::uint8_t* mask,
                            std::initializer_list<memory> per_channel) {
  auto out = memory::of("dx", dx);
  auto residual = memory::of("residual_grad", residual_grad, dx.layout());
  check.apart({out, residual}, {memory::of_mask("mask", mask, dx)});
  check.apart({out, residual}, per_channel);
}

void check_input_gradient(const call_check& check, const const_tensor_view& dy,
                          const std::uint8_t* mask, const tensor_view& dx,
                          const void* residual_grad) {
  check.tensor("dy", dy);
  check.tensor("dx", dx);
  check.same_layout("dx", dx, "dy", dy);
  check.in_place("dx", dx, "dy", dy);
  check.mask("mask", mask);
  check.optional_array("residual_grad", residual_grad, dy.type());
  if (residual_grad != nullptr && residual_grad == dx.data())
    check.fail(errc::invalid_argument, "residual_grad",
               "memory apart from dx's", "the memory of dx");
  if (residual_grad == nullptr)
    return;
  const_tensor_view written{residual_grad, dx.layout()};
  check.in_place("residual_grad", written, "dy", dy);
  check.in_place("residual_grad", written, "dx", dx);
}

void check_input(const call_check& check, const const_tensor_view& x,
                 const tensor_view& dx, const void* residual_grad) {
  check.in_place("dx", dx, "x", x);
  if (residual_grad != nullptr)
    check.in_place("residual_grad",
                   const_tensor_view{residual_grad, dx.layout()}, "x", x);
}

void check_sums(const call_check& check, const total_sums& sums,
                const const_tensor_view& x, dtype type) {
  check.array("sums.sum_dy", sums.sum_dy, type);
  check.array("sums.sum_dy_xmu", sums.sum_dy_xmu, type);
  if (sums.count < x.shape().per_channel())
    check.fail(errc::invalid_argument, "sums.count",
               fmt::format("at least the {} elements of each channel of x",
                           x.shape().per_channel()),
               std::to_string(sums.count));
}

void detail::check_in_place(std::string_view operation,
                            std::string_view argument,
                            const const_tensor_view& out,
                            std::string_view input,
                            const const_tensor_view& in) {
  call_check{operation, {}}.in_place(argument, out, input, in);
}

} // namespace syncnorm
