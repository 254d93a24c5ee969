#include "actors/nn/backward_part.hpp"

#include "actors/nn/tensor_bridge.hpp"
#include "actors/nn/tensor_kernels.hpp"
#include "actors/nn/torch_devices.hpp"
#include "syncnorm/batch_norm.hpp"
#include "syncnorm/error.hpp"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <exception>
#include <string>
#include <tuple>

namespace syncnorm::nn::detail {

namespace {

[[noreturn]] void refuse(errc code, const saved_part& part,
                         const std::string& what) {
  throw error{code, fmt::format("{}: backward: {}", part.layer, what)};
}

channel_parameters parameters_of(const backward_part& part) {
  channel_parameters result;
  result.mean = part.statistics.mean.data_ptr();
  result.inv_std = part.statistics.inv_std.data_ptr();
  return result;
}

/// A vector of channels, in memory of its own: the owner of a gradient may
/// write to it as to any other.
at::Tensor make_gradient(const backward_part& part) {
  return at::empty({part.x.size(1)}, part.statistics.mean.options());
}

/// What is enqueued on `later` from here on waits for what is on `earlier`.
void let_wait(const c10::Stream& later, const c10::Stream& earlier) {
  c10::Event event{earlier.device_type()};
  event.record(earlier);
  event.block(later);
}

/// Refuses a tensor that has been replaced since the forward pass, by
/// `set_data` as `to` does: the kernels read memory by the dtype of the
/// statistics.
/// @param channels their place in the shape of `x`.
/// @param is_same_type whether the dtype of `x` goes with the statistics'.
void require_as_saved(const saved_part& saved, const at::Tensor& x,
                      const char* name, std::int64_t channels,
                      bool is_same_type) {
  const auto& mean = saved.statistics.mean;
  auto differs = [&](errc code, const auto& expected, const auto& got) {
    refuse(code, saved,
           fmt::format("{}: expected {}, as in the forward pass, got {}", name,
                       expected, got));
  };
  if (x.device() != mean.device())
    differs(errc::device_mismatch, mean.device().str(), x.device().str());
  if (!is_same_type)
    differs(errc::dtype_mismatch, c10::toString(mean.scalar_type()),
            c10::toString(x.scalar_type()));
  if (x.dim() <= channels || x.size(channels) != mean.numel())
    differs(errc::shape_mismatch, fmt::format("{} channels", mean.numel()),
            fmt::format("a shape of {} dimensions and {} elements", x.dim(),
                        x.numel()));
}

} // namespace

backward_part unpack(const saved_part& saved, const at::Tensor& dy) {
  backward_part result;
  result.x = saved.x.unpack();
  if (saved.has_weight)
    result.weight = saved.weight.unpack();
  result.has_bias = saved.has_bias;
  // Happens only in a graph of several copies.
  if (!result.x.defined() || result.weight.defined() != saved.has_weight)
    refuse(errc::invalid_argument, saved,
           "expected inputs and forward passes of all copies outside of "
           "InferenceMode, got one inside");
  result.dy = dy.defined() ? dy : at::zeros_like(result.x);
  result.statistics = saved.statistics;
  const auto& mean = saved.statistics.mean;
  auto type = result.x.scalar_type();
  auto is_wide = mean.scalar_type() == at::kDouble;
  require_as_saved(saved, result.x, "input", 1,
                   (type == at::kDouble) == is_wide);
  if (result.weight.defined())
    require_as_saved(saved, result.weight, "weight", 0,
                     result.weight.scalar_type() == mean.scalar_type());
  return result;
}

void require_forward_is_over(const saved_part& part) {
  auto is_set = [](const std::atomic<bool>& x) {
    return x.load(std::memory_order_acquire);
  };
  if (!is_set(part.has_statistics)
      || (part.pass_is_over && !is_set(*part.pass_is_over)))
    refuse(errc::invalid_argument, part,
           "expected the data-parallel forward pass of all copies to be over, "
           "got a backward call inside of it; copies with graphs and threads "
           "of their own, of synchronize, may have one");
}

void require_graphs_of_all(const saved_part& part) {
  if (part.copy_without_graph >= 0)
    refuse(errc::invalid_argument, part,
           fmt::format("expected every copy to have recorded a graph in its "
                       "forward call, but copy {} has none: it ran under "
                       "NoGradGuard, or neither its input nor its parameters "
                       "require a gradient",
                       part.copy_without_graph));
}

forward_streams::forward_streams(const std::vector<saved_part_ptr>& parts) {
  for (const auto& part : parts)
    if (part->stream)
      std::ignore = entry_of(*part->stream);
  if (entries_.empty())
    return;
  std::vector<c10::Stream> all;
  for (const auto& x : entries_) {
    for (const auto& other : x.others)
      let_wait(x.forward, other);
    all.push_back(x.forward);
  }
  guard_.emplace(all);
}

forward_streams::~forward_streams() {
  guard_.reset();
  try {
    for (const auto& x : entries_)
      for (const auto& other : x.others)
        let_wait(other, x.forward);
  } catch (const std::exception&) {
    // The device is lost; its next use will report this.
  }
}

/// The device's entry; all its streams but the forward one that counts are
/// among `others`.
forward_streams::entry& forward_streams::entry_of(const c10::Stream& forward) {
  auto add = [](entry& to, const c10::Stream& x) {
    if (x != to.forward)
      to.others.push_back(x);
  };
  for (auto& x : entries_)
    if (x.forward.device() == forward.device()) {
      add(x, forward);
      return x;
    }
  auto& result = entries_.emplace_back(entry{forward, {}});
  c10::impl::VirtualGuardImpl device{forward.device_type()};
  add(result, device.getStream(forward.device()));
  add(result, device.getDefaultStream(forward.device()));
  return result;
}

void reduce(backward_part& part, bool split) {
  c10::NoGradGuard no_grad;
  part.dy = with_layout_of(part.x, part.dy);
  part.sums = at::empty({2, part.x.size(1)}, part.statistics.mean.options());
  backward_sums out;
  out.sum_dy = part.sums[0].data_ptr();
  out.sum_dy_xmu = part.sums[1].data_ptr();
  if (part.weight.defined()) {
    part.weight_grad = make_gradient(part);
    out.weight_grad = part.weight_grad.data_ptr();
  }
  if (part.has_bias) {
    part.bias_grad = make_gradient(part);
    out.bias_grad = part.bias_grad.data_ptr();
  }
  tensor_kernels kernels{part.x.device(), split};
  kernels.backward_reduce(view_of(part.dy), view_of(part.x),
                          parameters_of(part), out);
}

at::Tensor totals_for(const backward_part& part, const at::Tensor& sums) {
  auto options = part.statistics.mean.options();
  if (part.statistics.constant)
    return at::zeros({2, part.x.size(1)}, options);
  auto result = sums.to(options);
  if (part.statistics.unclamped.defined())
    result = at::stack({result[0], result[1] * part.statistics.unclamped});
  return result;
}

void finish(backward_part& part, const at::Tensor& totals, bool split) {
  c10::NoGradGuard no_grad;
  part.dx = make_like(part.x);
  if (part.x.numel() == 0)
    return;
  auto parameters = parameters_of(part);
  at::Tensor weight;
  if (part.weight.defined()) {
    weight = part.weight.contiguous();
    parameters.weight = weight.data_ptr();
  }
  const auto* first = static_cast<const char*>(totals.data_ptr());
  // In evaluation the sums are zero, whatever the count.
  total_sums total{first, first + totals.stride(0) * totals.element_size(),
                   part.statistics.constant ? part.x.numel()
                                            : part.statistics.count};
  tensor_kernels kernels{part.x.device(), split};
  kernels.backward_input(view_of(part.dy), view_of(part.x), parameters, total,
                         mutable_view_of(part.dx));
}

} // namespace syncnorm::nn::detail
