#include "actors/nn/batch_norm_node.hpp"
#include "actors/nn/joint_rounds.hpp"
#include "actors/nn/layer_check.hpp"
#include "actors/nn/seat.hpp"
#include "actors/nn/tensor_bridge.hpp"
#include "syncnorm/batch_norm.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/nn/synchronized_batch_norm.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <cmath>
#include <utility>

namespace syncnorm::nn {

namespace {

using namespace detail;

/// The moments of `x`, as a layer sends them.
round_request moments_of(const at::Tensor& x) {
  auto view = view_of(x);
  auto channels = view.shape().channels;
  round_request result;
  result.type = view.type();
  result.channels = channels;
  result.values.resize(static_cast<std::size_t>(2 * channels));
  moments_view out;
  out.mean = result.values.data();
  out.m2 = result.values.data() + channels;
  out.channels = channels;
  out.type = dtype::float64;
  torch_execution run;
  auto scratch = make_scratch(batch_moments_workspace(view.layout()));
  batch_moments(run, view, out, scratch_of(scratch));
  result.count = out.count;
  return result;
}

/// One per channel where the variance counts, zero where epsilon took its
/// place.
at::Tensor unclamped_of(const std::vector<double>& values, double eps) {
  auto channels = static_cast<std::int64_t>(values.size() / 2);
  auto result = at::empty({channels}, at::kDouble);
  for (std::int64_t c = 0; c < channels; ++c)
    result.data_ptr<double>()[c] =
        values[static_cast<std::size_t>(channels + c)] < 1 / std::sqrt(eps);
  return result;
}

saved_statistics saved_of(const round_reply& reply,
                          const SynchronizedBatchNormOptions& options,
                          const at::TensorOptions& like) {
  auto both = from_doubles(reply.values, like).view({2, -1});
  saved_statistics result;
  result.mean = both[0];
  result.inv_std = both[1];
  result.count = reply.count;
  result.eps = options.eps();
  result.mode = options.eps_mode();
  if (result.mode == eps_mode::clamp)
    result.unclamped = unclamped_of(reply.values, options.eps());
  return result;
}

/// The constants of evaluation, from the running statistics.
saved_statistics constants_of(const at::Tensor& mean, const at::Tensor& var,
                              const SynchronizedBatchNormOptions& options,
                              const at::TensorOptions& like) {
  auto wide = var.to(at::kDouble);
  auto kept = options.eps_mode() == eps_mode::plus
                  ? wide + options.eps()
                  : at::clamp_min(wide, options.eps());
  saved_statistics result;
  result.mean = mean.to(like).clone();
  result.inv_std = kept.rsqrt().to(like);
  result.constant = true;
  return result;
}

/// What one forward call needs besides its input.
struct arguments {
  at::Tensor weight;
  at::Tensor bias;

  [[nodiscard]] bool requires_grad(const at::Tensor& x) const {
    return torch::autograd::compute_requires_grad(x, weight, bias);
  }
};

saved_part_ptr save(const at::Tensor& x, const at::Tensor& y,
                    const arguments& affine) {
  auto part = std::make_shared<saved_part>();
  part->x = torch::autograd::SavedVariable{x, false};
  part->has_weight = affine.weight.defined();
  if (part->has_weight)
    part->weight = torch::autograd::SavedVariable{affine.weight, false};
  if (c10::GradMode::is_enabled())
    part->edges =
        torch::autograd::collect_next_edges(x, affine.weight, affine.bias);
  part->edges.resize(3);
  part->like_y = at::empty({}, y.options()).expand(y.sizes());
  return part;
}

void set_history(at::Tensor& y, const node_ptr<batch_norm_node>& node,
                 std::size_t output) {
  if (node)
    torch::autograd::impl::set_gradient_edge(
        y, torch::autograd::Edge{node, static_cast<std::uint32_t>(output)});
}

/// One forward call of a layer.
class forward_call {
public:
  forward_call(const at::Tensor& input, arguments affine,
               const SynchronizedBatchNormOptions& options)
      : x_{with_plain_layout(input)},
        y_{make_like(x_)},
        affine_{std::move(affine)},
        options_{options},
        statistics_type_{
            to_scalar_type(statistics_type(*to_dtype(input.scalar_type())))} {}

  at::Tensor evaluate(const at::Tensor& mean, const at::Tensor& var) {
    auto saved = constants_of(mean, var, options_, statistics());
    normalize_with(saved);
    own_history(saved, nullptr);
    return y_;
  }

  /// @param update sees the reply before the output is made.
  template <class Prepare, class Update>
  at::Tensor train(const participant_ptr& seat, Prepare prepare,
                   Update update) {
    auto request = moments_of(x_.detach());
    prepare(request);
    if (seat && seat->joint())
      return train_jointly(*seat, std::move(request), update);
    auto reply =
        seat ? seat->run(std::move(request)) : merge_alone(std::move(request));
    auto saved = accept(reply, update);
    own_history(saved, seat);
    return y_;
  }

private:
  [[nodiscard]] at::TensorOptions statistics() const {
    return x_.options().dtype(statistics_type_).requires_grad(false);
  }

  template <class Update>
  at::Tensor train_jointly(participant& seat, round_request request,
                           Update update) {
    auto copy = static_cast<std::size_t>(seat.copy_id());
    auto round = seat.messages_sent();
    auto& joint = *seat.joint();
    joint.post(copy, round, save(x_, y_, affine_));
    round_reply reply;
    try {
      reply = seat.run(std::move(request));
    } catch (...) {
      joint.withdraw(copy, round);
      throw;
    }
    auto saved = accept(reply, update);
    set_history(y_, joint.join(copy, round, saved), copy);
    return y_;
  }

  template <class Update>
  saved_statistics accept(const round_reply& reply, Update update) {
    require_several_values(reply.count);
    update(reply);
    auto saved = saved_of(reply, options_, statistics());
    normalize_with(saved);
    return saved;
  }

  static void require_several_values(std::int64_t count) {
    if (count == 1)
      throw error{errc::invalid_argument,
                  "SynchronizedBatchNorm: input: expected more than 1 value "
                  "per channel over all copies when training, got 1"};
  }

  void normalize_with(const saved_statistics& saved) {
    if (x_.numel() == 0)
      return;
    channel_parameters parameters;
    parameters.mean = saved.mean.data_ptr();
    parameters.inv_std = saved.inv_std.data_ptr();
    if (affine_.weight.defined()) {
      parameters.weight = affine_.weight.data_ptr();
      parameters.bias = affine_.bias.data_ptr();
    }
    torch_execution run;
    normalize(run, view_of(x_), parameters, mutable_view_of(y_));
  }

  void own_history(const saved_statistics& saved, const participant_ptr& seat) {
    if (!c10::GradMode::is_enabled() || !affine_.requires_grad(x_))
      return;
    std::vector<saved_part_ptr> parts{save(x_, y_, affine_)};
    set_history(y_, make_node<batch_norm_node>(parts, saved, seat), 0);
  }

  at::Tensor x_;
  at::Tensor y_;
  arguments affine_;
  const SynchronizedBatchNormOptions& options_;
  at::ScalarType statistics_type_;
};

/// Puts the layer's options and running statistics into its message.
void add_update(const SynchronizedBatchNormOptions& options,
                const at::Tensor& mean, const at::Tensor& var,
                const at::Tensor& batches, round_request& out) {
  auto momentum = options.momentum();
  out.eps = options.eps();
  out.mode = options.eps_mode();
  out.momentum = momentum ? *momentum : 0.0;
  out.cumulative = !momentum;
  if (!mean.defined())
    return;
  out.running = to_doubles(at::cat({mean.detach(), var.detach()}));
  out.num_batches_tracked = batches.item<std::int64_t>();
}

void take_over(const round_reply& reply, at::Tensor& mean, at::Tensor& var,
               at::Tensor& batches) {
  if (!mean.defined() || reply.running.empty())
    return;
  c10::NoGradGuard no_grad;
  auto both = from_doubles(reply.running, at::kDouble).view({2, -1});
  mean.copy_(both[0]);
  var.copy_(both[1]);
  batches.fill_(reply.num_batches_tracked);
}

} // namespace

void SynchronizedBatchNormBase::on_data_parallel_replicate(
    callback_context& context, std::int64_t copy_id) {
  const auto* scope = replication_scope::current();
  if (scope == nullptr)
    throw error{errc::invalid_argument,
                layer_text(kind(), context.path())
                    + ": a replication callback outside of a "
                      "replication_scope; use DataParallelWithCallback, "
                      "patch_replication_callback or synchronize"};
  if (seat_)
    throw error{errc::invalid_argument,
                layer_text(kind(), context.path())
                    + ": the replication callback ran twice on copy "
                    + std::to_string(copy_id) + "; release_replicas first"};
  seat_ = make_seat(*scope, context, copy_id, kind());
}

void SynchronizedBatchNormBase::on_data_parallel_release() {
  seat_.reset();
}

std::uint64_t SynchronizedBatchNormBase::messages_sent() const noexcept {
  return seat_ ? seat_->messages_sent() : 0;
}

torch::Tensor SynchronizedBatchNormBase::run(const torch::Tensor& input,
                                             const call& with) const {
  auto seat = with.training ? seat_ : nullptr;
  try {
    check_call(kind(), input, with.dimensions, with.options, with.weight,
               with.running_mean);
    forward_call here{input, {with.weight, with.bias}, with.options};
    if (!with.training && with.running_mean.defined())
      return here.evaluate(with.running_mean, with.running_var);
    auto tracked = with.training && with.options.track_running_stats();
    at::Tensor none;
    auto& mean = tracked ? with.running_mean : none;
    auto& var = tracked ? with.running_var : none;
    auto& batches = with.num_batches_tracked;
    return here.train(
        seat,
        [&](round_request& out) {
          add_update(with.options, mean, var, batches, out);
        },
        [&](const round_reply& reply) {
          take_over(reply, mean, var, batches);
        });
  } catch (const std::exception& x) {
    if (seat)
      seat->layer_failed(x.what());
    throw;
  }
}

} // namespace syncnorm::nn
