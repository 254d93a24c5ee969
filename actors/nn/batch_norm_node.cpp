#include "actors/nn/batch_norm_node.hpp"

#include "actors/nn/differentiable.hpp"
#include "actors/nn/tensor_bridge.hpp"
#include "syncnorm/batch_norm.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

namespace syncnorm::nn::detail {

using torch::autograd::variable_list;

/// One copy's share of a backward pass.
struct batch_norm_node::part_run {
  at::Tensor x;
  at::Tensor dy;
  at::Tensor weight;
  /// sum_dy, sum_dy_xmu, gradients of weight and bias: 4 x C.
  at::Tensor sums;
  at::Tensor dx;
  bool wants_x = false;

  [[nodiscard]] void* row(std::int64_t i) const {
    return sums.select(0, i).data_ptr();
  }
};

batch_norm_node::batch_norm_node(std::vector<saved_part_ptr> parts,
                                 saved_statistics saved, participant_ptr seat)
    : parts_{std::move(parts)},
      saved_{std::move(saved)},
      seat_{std::move(seat)} {
  for (const auto& part : parts_) {
    for (const auto& edge : part->edges)
      add_next_edge(edge);
    add_input_metadata(part->like_y);
  }
}

variable_list batch_norm_node::apply(variable_list&& grads) {
  return c10::GradMode::is_enabled() ? run_differentiable(grads)
                                     : run_kernels(grads);
}

void batch_norm_node::release_variables() {
  for (auto& part : parts_) {
    part->x.reset_data();
    part->weight.reset_data();
  }
}

std::vector<batch_norm_node::part_run>
batch_norm_node::unpack(const variable_list& grads) {
  std::vector<part_run> result(parts_.size());
  for (std::size_t r = 0; r < parts_.size(); ++r) {
    auto& part = result[r];
    part.x = parts_[r]->x.unpack();
    if (parts_[r]->has_weight)
      part.weight = parts_[r]->weight.unpack();
    part.dy = grads[r].defined() ? grads[r] : at::zeros_like(part.x);
    part.wants_x = task_should_compute_output(3 * r);
  }
  return result;
}

variable_list batch_norm_node::run_kernels(const variable_list& grads) {
  auto parts = unpack(grads);
  for (auto& part : parts) {
    part.dy = with_layout_of(part.x, part.dy);
    part.sums = at::empty({4, part.x.size(1)}, saved_.mean.options());
    if (part.wants_x)
      part.dx = make_like(part.x);
  }
  // As many copies as threads: a thread each. Fewer: each call is split.
  auto n = static_cast<std::int64_t>(parts.size());
  auto side_by_side = n > 1 && n >= at::get_num_threads();
  auto for_each_part = [&](auto&& f) {
    if (side_by_side)
      at::parallel_for(0, n, 1, [&](std::int64_t first, std::int64_t last) {
        for (auto r = first; r < last; ++r)
          f(parts[static_cast<std::size_t>(r)]);
      });
    else
      std::for_each(parts.begin(), parts.end(), f);
  };
  for_each_part([&](part_run& part) { reduce(part, !side_by_side); });
  auto sums = total_sums_of(parts);
  for_each_part([&](part_run& part) { finish(part, sums, !side_by_side); });
  variable_list result;
  for (auto& part : parts) {
    auto i = result.size();
    result.push_back(part.dx);
    auto affine = part.weight.defined();
    result.push_back(affine && task_should_compute_output(i + 1)
                         ? part.sums[2]
                         : at::Tensor{});
    result.push_back(affine && task_should_compute_output(i + 2)
                         ? part.sums[3]
                         : at::Tensor{});
  }
  return result;
}

void batch_norm_node::reduce(part_run& part, bool split) const {
  c10::NoGradGuard no_grad;
  torch_execution run{split};
  auto x = view_of(part.x);
  auto scratch = make_scratch(backward_reduce_workspace(x.layout()));
  channel_parameters parameters;
  parameters.mean = saved_.mean.data_ptr();
  parameters.inv_std = saved_.inv_std.data_ptr();
  backward_reduce(run, view_of(part.dy), x, parameters, nullptr,
                  {part.row(0), part.row(1), part.row(2), part.row(3)},
                  scratch_of(scratch));
}

/// Adds the parts' sums in the order of the copies, in float64, or those of
/// all copies by a round. Returns sum_dy and sum_dy_xmu: 2 x C.
at::Tensor batch_norm_node::total_sums_of(std::vector<part_run>& parts) const {
  auto channels = parts.front().x.size(1);
  if (saved_.constant)
    return at::zeros({2, channels}, saved_.mean.options());
  auto sums = at::zeros({2, channels}, at::kDouble);
  for (auto& part : parts)
    sums += part.sums.narrow(0, 0, 2);
  if (seat_)
    sums = exchange_sums(*seat_, sums, parts.front().x);
  if (saved_.unclamped.defined())
    sums[1] *= saved_.unclamped;
  return sums.to(saved_.mean.options());
}

void batch_norm_node::finish(part_run& part, const at::Tensor& sums,
                             bool split) const {
  if (!part.wants_x || part.x.numel() == 0)
    return;
  torch_execution run{split};
  channel_parameters parameters;
  parameters.mean = saved_.mean.data_ptr();
  parameters.inv_std = saved_.inv_std.data_ptr();
  if (part.weight.defined())
    parameters.weight = part.weight.data_ptr();
  const auto* first = static_cast<const char*>(sums.data_ptr());
  // In evaluation the sums are zero, whatever the count.
  total_sums total{first, first + sums.stride(0) * sums.element_size(),
                   saved_.constant ? part.x.numel() : saved_.count};
  backward_input(run, view_of(part.dy), view_of(part.x), parameters, total,
                 nullptr, mutable_view_of(part.dx));
}

variable_list batch_norm_node::run_differentiable(const variable_list& grads) {
  std::vector<differentiable_part> parts;
  for (auto& part : unpack(grads))
    parts.push_back({part.x, part.dy, part.weight});
  return differentiable_backward(parts, saved_, seat_);
}

bool any_edge(const std::vector<saved_part_ptr>& parts) {
  return std::any_of(parts.begin(), parts.end(), [](const auto& part) {
    return std::any_of(part->edges.begin(), part->edges.end(),
                       [](const auto& edge) { return edge.is_valid(); });
  });
}

} // namespace syncnorm::nn::detail
