#pragma once

// From the arguments of a call to the elementwise pass and the plan that it
// runs by; `run(pass, plan)` then launches the pass or, in a test, does it on
// the host.

#include "kernels/backend.hpp"
#include "kernels/cuda/alignment.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/width.hpp"
#include "kernels/dispatch.hpp"

#include <initializer_list>

namespace syncnorm::cuda {

/// A tensor of an elementwise operation. Null data: not there.
struct operand {
  const void* data = nullptr;
  std::int64_t sample_stride = 0;
};

/// What the tensors of an elementwise call have in common.
struct pass_geometry {
  flat_index index;
  pass_plan plan;

  /// The same tensor for the kernel.
  template <class T>
  [[nodiscard]] gapped<T> place(const operand& tensor) const {
    return {static_cast<T*>(const_cast<void*>(tensor.data)),
            tensor.sample_stride - index.samples.per_sample.value()};
  }
};

[[nodiscard]] inline pass_geometry
plan_pass(const tensor_layout& layout, std::initializer_list<operand> tensors) {
  auto sample = layout.shape.channels * layout.shape.spatial;
  auto width = std::int64_t(vector_bytes / size_of(layout.type));
  auto wide = sample * layout.shape.samples % width == 0;
  auto dense = true;
  for (const auto& tensor : tensors) {
    if (tensor.data == nullptr)
      continue;
    wide = wide && start_aligned({tensor.data});
    if (layout.shape.samples <= 1 || tensor.sample_stride == sample)
      continue;
    dense = false;
    wide = wide && tensor.sample_stride % width == 0 && sample % width == 0;
  }
  auto shape = canonical(layout.format, layout.shape, false);
  return {flat_index{shape, dense},
          make_pass_plan(shape, wide ? int(width) : 1)};
}

/// Calls `f.template operator()<T, Width, Format, Plain>()` for the call's
/// type, width and format. With a width of 1 there is no plain pass: speed does
/// not matter there.
template <class F>
void with_pass(dtype type, const pass_plan& plan, bool plain, const F& f) {
  constexpr auto first = memory_format::channels_first;
  constexpr auto last = memory_format::channels_last;
  auto planes = plan.format == first;
  with_element(type, [&](auto element_type) {
    using T = typename decltype(element_type)::type;
    with_width<T>(plan.width, [&](auto width) {
      constexpr auto wide = width > 1;
      if (wide && plain)
        planes ? f.template operator()<T, width, first, wide>()
               : f.template operator()<T, width, last, wide>();
      else
        planes ? f.template operator()<T, width, first, false>()
               : f.template operator()<T, width, last, false>();
    });
  });
}

/// Calls `run` with the pass of `normalize`.
template <class Run>
void with_normalize(const const_tensor_view& x,
                    const channel_normalizer& channel, const tensor_view& y,
                    const fused_tail& tail, const Run& run) {
  operand in{x.data(), x.sample_stride()};
  operand residual{tail.residual, y.sample_stride()};
  operand out{y.data(), y.sample_stride()};
  auto geometry = plan_pass(x.layout(), {in, residual, out});
  auto plain = geometry.index.samples.dense && tail.residual == nullptr
               && !tail.relu && tail.mask == nullptr && !channel.is_variance;
  with_pass(x.type(), geometry.plan, plain,
            [&]<class T, int Width, memory_format Format, bool Plain>() {
              using pass = normalize_pass<T, Width, Format, Plain>;
              run(pass{geometry.index, geometry.place<const T>(in),
                       geometry.place<const T>(residual),
                       geometry.place<T>(out),
                       channel_arrays<typename pass::real>{
                           channel, x.shape().channels, Width, {}},
                       tail.mask, tail.relu},
                  geometry.plan);
            });
}

/// The tensors of a backward pass; `x` has no data in evaluation.
struct gradient_operands {
  operand dy;
  operand x;
  operand dx;
  operand residual_grad;
};

/// Calls `run` with the pass of `backward_input`.
template <class Run>
void with_backward(const tensor_layout& layout,
                   const gradient_operands& tensors,
                   const channel_normalizer& channel, const total_sums& sums,
                   const std::uint8_t* mask, const Run& run) {
  auto geometry = plan_pass(
      layout, {tensors.dy, tensors.x, tensors.dx, tensors.residual_grad});
  auto share = sums.count == 0 ? 0.0 : 1.0 / double(sums.count);
  auto plain = geometry.index.samples.dense && tensors.x.data != nullptr
               && tensors.residual_grad.data == nullptr && mask == nullptr
               && !channel.is_variance;
  with_pass(layout.type, geometry.plan, plain,
            [&]<class T, int Width, memory_format Format, bool Plain>() {
              using pass = backward_pass<T, Width, Format, Plain>;
              using real = typename pass::real;
              run(pass{geometry.index, geometry.place<const T>(tensors.dy),
                       geometry.place<const T>(tensors.x),
                       geometry.place<T>(tensors.dx),
                       geometry.place<T>(tensors.residual_grad),
                       channel_arrays<real>{channel,
                                            layout.shape.channels,
                                            Width,
                                            {sums.sum_dy, sums.sum_dy_xmu}},
                       mask, static_cast<const real*>(sums.sum_dy),
                       static_cast<const real*>(sums.sum_dy_xmu), real(share)},
                  geometry.plan);
            });
}

/// The same for training, from the arguments of the public function.
template <class Run>
void with_backward_input(const const_tensor_view& dy,
                         const const_tensor_view& x,
                         const channel_parameters& parameters,
                         const total_sums& sums, const std::uint8_t* mask,
                         const tensor_view& dx, void* residual_grad,
                         const Run& run) {
  channel_normalizer channel;
  channel.mean = parameters.mean;
  channel.spread = parameters.inv_std;
  channel.weight = parameters.weight;
  with_backward(x.layout(),
                {{dy.data(), dy.sample_stride()},
                 {x.data(), x.sample_stride()},
                 {dx.data(), dx.sample_stride()},
                 {residual_grad, dx.sample_stride()}},
                channel, sums, mask, run);
}

/// The same for evaluation.
template <class Run>
void with_backward_input_eval(const const_tensor_view& dy,
                              const channel_normalizer& channel,
                              const std::uint8_t* mask, const tensor_view& dx,
                              void* residual_grad, const Run& run) {
  with_backward(dy.layout(),
                {{dy.data(), dy.sample_stride()},
                 {},
                 {dx.data(), dx.sample_stride()},
                 {residual_grad, dx.sample_stride()}},
                channel, {}, mask, run);
}

} // namespace syncnorm::cuda
