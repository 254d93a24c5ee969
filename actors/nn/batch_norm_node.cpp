#include "actors/nn/batch_norm_node.hpp"

#include "actors/nn/differentiable.hpp"
#include "actors/nn/exchange_node.hpp"
#include "actors/nn/exchange_sums.hpp"
#include "actors/nn/telling_others.hpp"
#include "syncnorm/error.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace syncnorm::nn::detail {

using torch::autograd::variable_list;

namespace {

bool is_on_cpu(const backward_part& part) {
  return part.x.is_cpu();
}

/// Calls `f(part, split)` for each part: first for those on devices, which only
/// enqueue. Of those on CPUs, each has one thread if there are as many copies
/// as threads; with fewer copies, each call is split.
template <class F>
void for_each_part(std::vector<backward_part>& parts, F f) {
  std::vector<backward_part*> on_cpu;
  for (auto& part : parts) {
    if (is_on_cpu(part))
      on_cpu.push_back(&part);
    else
      f(part, true);
  }
  auto n = static_cast<std::int64_t>(on_cpu.size());
  if (n <= 1 || n < at::get_num_threads()) {
    for (auto* part : on_cpu)
      f(*part, true);
    return;
  }
  at::parallel_for(0, n, 1, [&](std::int64_t first, std::int64_t last) {
    for (auto r = first; r < last; ++r)
      f(*on_cpu[static_cast<std::size_t>(r)], false);
  });
}

/// For a pass in which a copy waits for the others on libtorch's thread for its
/// device.
void require_own_device(const participant& seat, const char* pass) {
  if (auto shared = seat.shared_device())
    throw error{errc::invalid_argument,
                fmt::format("{}: {}: expected a CUDA device for each copy with "
                            "a graph of its own, got {}; "
                            "DataParallelWithCallback can have several copies "
                            "on one",
                            seat.name(), pass, *shared)};
}

} // namespace

/// While one of these lives, so does what the parts have saved.
class batch_norm_node::pass {
public:
  /// @throws what libtorch throws for a graph that is over.
  explicit pass(batch_norm_node& through) : node_{through} {
    TORCH_CHECK(node_.uses_.enter(), torch::autograd::ERR_BACKWARD_TWICE);
  }

  pass(const pass&) = delete;
  pass& operator=(const pass&) = delete;

  ~pass() {
    if (node_.uses_.leave())
      node_.clear();
  }

private:
  batch_norm_node& node_;
};

batch_norm_node::batch_norm_node(std::vector<saved_part_ptr> parts,
                                 participant_ptr seat)
    : Node{parts.front()->sequence_nr},
      parts_{std::move(parts)},
      seat_{std::move(seat)} {
  for (const auto& part : parts_) {
    for (auto& edge : std::exchange(part->edges, {}))
      add_next_edge(std::move(edge));
    add_input_metadata(part->like_y);
  }
  const auto& first = parts_.front();
  if (!seat_ || !first->stream)
    return;
  handed_over_ = std::make_shared<backward_part>();
  auto to_x = next_edge(0);
  auto second_half = make_node<exchange_node>(first, to_x, seat_, handed_over_);
  set_next_edge(0, torch::autograd::Edge{std::move(second_half), 0});
  add_next_edge(std::move(to_x));
}

variable_list batch_norm_node::apply(variable_list&& grads) {
  for (const auto& part : parts_)
    require_forward_is_over(*part);
  // A second pass through a graph that is over throws here, as its caller's
  // mistake: the others may still wait for the copy's next passes.
  pass here{*this};
  return telling_others(seat_, [&] {
    require_graphs_of_all(*parts_.front());
    forward_streams streams{parts_};
    return c10::GradMode::is_enabled() ? run_differentiable(grads)
                                       : run_kernels(grads);
  });
}

void batch_norm_node::release_variables() {
  if (uses_.close())
    clear();
}

void batch_norm_node::clear() {
  for (auto& part : parts_) {
    part->x.reset_data();
    part->weight.reset_data();
  }
}

std::vector<backward_part>
batch_norm_node::unpack_all(const variable_list& grads) const {
  std::vector<backward_part> result;
  for (std::size_t r = 0; r < parts_.size(); ++r)
    result.push_back(unpack(*parts_[r], grads[r]));
  return result;
}

variable_list batch_norm_node::run_kernels(const variable_list& grads) {
  auto parts = unpack_all(grads);
  for_each_part(parts, [](auto& part, bool split) { reduce(part, split); });
  // A pass that does not reach the second half takes part in its round here.
  auto whole = !handed_over_ || !task_should_compute_output(0);
  if (whole) {
    if (handed_over_)
      require_own_device(*seat_, "backward without the gradient of the input");
    auto sums = total_sums_of(parts);
    for_each_part(parts, [&](auto& part, bool split) {
      auto r = static_cast<std::size_t>(&part - parts.data());
      if (!handed_over_ && task_should_compute_output(3 * r))
        finish(part, totals_for(part, sums), split);
    });
  }
  variable_list result;
  for (auto& part : parts) {
    auto i = result.size();
    auto if_wanted = [&](std::size_t output, const at::Tensor& grad) {
      return task_should_compute_output(output) ? grad : at::Tensor{};
    };
    result.push_back(part.dx);
    result.push_back(if_wanted(i + 1, part.weight_grad));
    result.push_back(if_wanted(i + 2, part.bias_grad));
  }
  if (handed_over_)
    result.emplace_back();
  if (!whole) {
    const auto& mine = parts.front();
    begin_exchange(*seat_, mine.sums, mine);
    result[0] = exchange_node::token();
    *handed_over_ = std::move(parts.front());
  }
  return result;
}

/// Adds the parts' sums in the order of the copies, in float64, or those of all
/// copies by a round. Returns sum_dy and sum_dy_xmu: 2 x C. Parts that are all
/// on devices are added on the device of the first one.
at::Tensor
batch_norm_node::total_sums_of(const std::vector<backward_part>& parts) const {
  const auto& first = parts.front();
  if (first.statistics.constant)
    return {};
  if (seat_)
    return exchange_sums(*seat_, first.sums, first);
  auto home = std::any_of(parts.begin(), parts.end(), is_on_cpu)
                  ? at::Device{at::kCPU}
                  : first.x.device();
  auto total = at::zeros({2, first.x.size(1)},
                         at::TensorOptions{home}.dtype(at::kDouble));
  for (const auto& part : parts)
    total += part.sums.to(total.options());
  return total;
}

variable_list batch_norm_node::run_differentiable(const variable_list& grads) {
  if (handed_over_)
    require_own_device(*seat_, "second derivatives");
  auto result = differentiable_backward(unpack_all(grads), seat_);
  if (!handed_over_)
    return result;
  result.push_back(result[0]);
  result[0] = at::Tensor{};
  return result;
}

bool any_edge(const std::vector<saved_part_ptr>& parts) {
  return std::any_of(parts.begin(), parts.end(), [](const auto& part) {
    return std::any_of(part->edges.begin(), part->edges.end(),
                       [](const auto& edge) { return edge.is_valid(); });
  });
}

} // namespace syncnorm::nn::detail
