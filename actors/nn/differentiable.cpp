#include "actors/nn/differentiable.hpp"

#include "actors/nn/exchange_sums.hpp"
#include "actors/nn/graph_node.hpp"
#include "actors/nn/telling_others.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

namespace syncnorm::nn::detail {

using torch::autograd::variable_list;

namespace {

/// Sums over all copies as a differentiable operation: its backward pass is a
/// sum over all copies again.
at::Tensor add_over_copies(const at::Tensor& sums, const backward_part& of,
                           const participant_ptr& seat);

class add_over_copies_node final : public torch::autograd::Node {
public:
  add_over_copies_node(const backward_part& of, participant_ptr seat)
      : seat_{std::move(seat)} {
    // Only x's shape, dtype and device: the graph may outlive what it saved.
    of_.x = at::empty({}, of.x.options()).expand(of.x.sizes());
    of_.statistics.pass = of.statistics.pass;
  }

  variable_list apply(variable_list&& grads) override {
    return telling_others(seat_, [&]() -> variable_list {
      auto options = of_.x.options().dtype(at::kDouble);
      auto grad = grads[0].defined() ? grads[0]
                                     : at::zeros({2, of_.x.size(1)}, options);
      return {add_over_copies(grad, of_, seat_)};
    });
  }

  std::string name() const override {
    return "SynchronizedBatchNormSumBackward";
  }

private:
  backward_part of_;
  participant_ptr seat_;
};

at::Tensor add_over_copies(const at::Tensor& sums, const backward_part& of,
                           const participant_ptr& seat) {
  auto wide = sums.to(at::kDouble);
  at::Tensor result;
  {
    c10::NoGradGuard no_grad;
    result = exchange_sums(*seat, wide.detach(), of).to(at::kDouble);
  }
  if (c10::GradMode::is_enabled() && wide.requires_grad()) {
    auto node = make_node<add_over_copies_node>(of, seat);
    node->set_next_edges(torch::autograd::collect_next_edges(wide));
    torch::autograd::set_history(result, node);
  }
  return result;
}

/// The sums of a call over parts or copies, in the dtype of the parameters.
class summation {
public:
  summation(const std::vector<backward_part>& parts,
            const participant_ptr& seat, at::ScalarType type)
      : parts_{parts},
        seat_{seat},
        type_{type} {}

  /// The sums over samples and spatial elements of the two tensors that `f`
  /// makes of each part: each of shape (C), on the first part's device.
  template <class F>
  std::pair<at::Tensor, at::Tensor> operator()(F f) const {
    at::Tensor total;
    for (std::size_t r = 0; r < parts_.size(); ++r) {
      auto [a, b] = f(r);
      auto sums = at::stack({per_channel(a), per_channel(b)});
      total = total.defined() ? total + sums.to(total.device()) : sums;
    }
    if (seat_)
      total = add_over_copies(total, parts_.front(), seat_).to(type_);
    return {total[0], total[1]};
  }

  static at::Tensor per_channel(const at::Tensor& x) {
    return x.transpose(0, 1).flatten(1).sum(1);
  }

private:
  const std::vector<backward_part>& parts_;
  const participant_ptr& seat_;
  at::ScalarType type_;
};

/// C values in a shape that broadcasts over `x`, on its device.
at::Tensor along_channels(const at::Tensor& values, const at::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = -1;
  return values.to(x.device()).view(shape);
}

struct constants {
  at::Tensor mean;
  at::Tensor inv_std;
};

/// Mean and inverse standard deviation of x, as it is given, with their history
/// in every x.
constants statistics_of(const std::vector<at::Tensor>& x, const summation& sum,
                        const saved_statistics& saved) {
  if (saved.constant)
    return {at::zeros_like(saved.mean), saved.inv_std};
  auto n = static_cast<double>(std::max<std::int64_t>(saved.count, 1));
  auto mean = sum([&](std::size_t r) {
                return std::pair{x[r], x[r]};
              }).first
              / n;
  auto square = [&](std::size_t r) {
    auto xmu = x[r] - along_channels(mean, x[r]);
    return std::pair{xmu * xmu, xmu};
  };
  auto var = sum(square).first / n;
  auto kept = saved.mode == eps_mode::plus ? var + saved.eps
                                           : at::clamp_min(var, saved.eps);
  return {mean, kept.rsqrt()};
}

} // namespace

variable_list differentiable_backward(const std::vector<backward_part>& parts,
                                      const participant_ptr& seat) {
  const auto& saved = parts.front().statistics;
  auto type = saved.mean.scalar_type();
  std::vector<at::Tensor> x;
  std::vector<at::Tensor> g;
  for (const auto& part : parts) {
    // Centered around the mean of the forward pass, as a constant: a large mean
    // would cost the sums below their digits.
    x.push_back(part.x.to(type) - along_channels(part.statistics.mean, part.x));
    auto dy = part.dy.to(type);
    g.push_back(part.weight.defined() ? dy * along_channels(part.weight, part.x)
                                      : dy);
  }
  // The statistics are constants in evaluation: nothing is exchanged.
  const participant_ptr none;
  summation sum{parts, saved.constant ? none : seat, type};
  auto statistics = statistics_of(x, sum, saved);
  const auto& mean = statistics.mean;
  const auto& inv_std = statistics.inv_std;
  auto n = static_cast<double>(std::max<std::int64_t>(saved.count, 1));
  at::Tensor sum_g;
  at::Tensor sum_g_xmu;
  if (!saved.constant)
    std::tie(sum_g, sum_g_xmu) = sum([&](std::size_t r) {
      return std::pair{g[r], g[r] * (x[r] - along_channels(mean, x[r]))};
    });
  if (sum_g_xmu.defined() && saved.unclamped.defined())
    sum_g_xmu = sum_g_xmu * saved.unclamped.to(sum_g_xmu.options());
  variable_list result;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    auto spread = [&](const at::Tensor& v) { return along_channels(v, x[r]); };
    auto xmu = x[r] - spread(mean);
    auto dx = g[r];
    if (!saved.constant)
      dx = dx - spread(sum_g / n)
           - xmu * spread(inv_std * inv_std * sum_g_xmu / n);
    result.push_back((dx * spread(inv_std)).to(parts[r].x.scalar_type()));
    auto here = [&](const at::Tensor& v) { return v.to(x[r].device()); };
    auto dy = parts[r].dy.to(type);
    result.push_back(parts[r].weight.defined()
                         ? summation::per_channel(dy * xmu) * here(inv_std)
                         : at::Tensor{});
    result.push_back(parts[r].has_bias ? summation::per_channel(dy)
                                       : at::Tensor{});
  }
  return result;
}

} // namespace syncnorm::nn::detail
