#include "kernels/backend.hpp"
#include "kernels/cpu/targets.hpp"
#include "kernels/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/backward_input.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/backward_input-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace syncnorm::cpu::HWY_NAMESPACE {

namespace {

/// Calls `body<T, Fused>()`, which is what the call's tensors need.
template <class Body>
void for_gradients(const backward_input_call& call, const Body& body) {
  auto fused = call.mask != nullptr || call.residual_grad != nullptr;
  with_element(call.dy.type(), [&]<class T>(element<T>) {
    if (fused)
      body.template operator()<T, true>();
    else
      body.template operator()<T, false>();
  });
}

void backward_input(const execution& run, const backward_input_call& call) {
  for_gradients(call, [&]<class T, bool Fused>() {
    training<T, Fused> operation{gradients_of<T, Fused>(call), call.parameters,
                                 call.sums};
    do_elements(run, operation, operation.w, is_streamed(call), 1);
  });
}

void backward_input_eval(const execution& run, const const_tensor_view& dy,
                         const channel_normalizer& channel,
                         const std::uint8_t* mask, const tensor_view& dx,
                         void* residual_grad) {
  backward_input_call call{dy, dy, {}, {}, mask, dx, residual_grad};
  for_gradients(call, [&]<class T, bool Fused>() {
    evaluation<T, Fused> operation{gradients_of<T, Fused>(call), channel};
    do_elements(run, operation, operation.w, is_streamed(call), 1);
  });
}

} // namespace

} // namespace syncnorm::cpu::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace syncnorm::cpu {

HWY_EXPORT(backward_input);
HWY_EXPORT(backward_input_eval);

void backward_input(const execution& run, const backward_input_call& call) {
  HWY_DYNAMIC_DISPATCH(backward_input)(run, call);
}

void backward_input_eval(const execution& run, const const_tensor_view& dy,
                         const channel_normalizer& channel,
                         const std::uint8_t* mask, const tensor_view& dx,
                         void* residual_grad) {
  HWY_DYNAMIC_DISPATCH(backward_input_eval)
  (run, dy, channel, mask, dx, residual_grad);
}

} // namespace syncnorm::cpu

#endif
