#include "actors/nn/batch_norm_node.hpp"
#include "actors/nn/joint_rounds.hpp"
#include "actors/nn/layer_check.hpp"
#include "actors/nn/seat.hpp"
#include "actors/nn/telling_others.hpp"
#include "actors/nn/tensor_bridge.hpp"
#include "actors/nn/tensor_kernels.hpp"
#include "actors/nn/torch_devices.hpp"
#include "syncnorm/batch_norm.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/nn/synchronized_batch_norm.hpp"

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <limits>
#include <memory>
#include <utility>

namespace syncnorm::nn {

namespace {

using namespace detail;

/// The moments of `x`, as a layer sends them: in float64, or on a device in the
/// statistics' type.
round_request moments_of(const at::Tensor& x) {
  auto view = view_of(x);
  auto channels = view.shape().channels;
  auto size = static_cast<std::size_t>(2 * channels);
  round_request result;
  result.type = view.type();
  result.channels = channels;
  tensor_kernels kernels{x.device()};
  moments_view out;
  out.channels = channels;
  out.type = dtype::float64;
  if (const auto& stream = kernels.stream()) {
    out.type = statistics_type(view.type());
    out.where = stream.where();
    result.device_values = device_array{stream, out.type, size};
    out.mean = result.device_values.data();
    out.m2 = result.device_values.at(size / 2);
    kernels.batch_moments(view, out);
    result.device_values.publish();
  } else {
    result.values.resize(size);
    out.mean = result.values.data();
    out.m2 = result.values.data() + channels;
    kernels.batch_moments(view, out);
  }
  result.count = out.count;
  return result;
}

/// For each channel: 1 where the variance counts, 0 where epsilon took its
/// place.
at::Tensor unclamped_of(const at::Tensor& inv_std, double eps) {
  auto channels = inv_std.numel();
  auto result = at::ones_like(inv_std);
  auto type = *to_dtype(inv_std.scalar_type());
  if (auto stream = current_stream(inv_std.device()))
    stream.runtime().clear_clamped(stream.run(), inv_std.data_ptr(), eps,
                                   channels, type, result.data_ptr());
  else
    clear_clamped({}, inv_std.data_ptr(), eps, channels, type,
                  result.data_ptr());
  return result;
}

saved_statistics saved_of(const round_reply& reply,
                          const SynchronizedBatchNormOptions& options,
                          const at::TensorOptions& like) {
  auto both = (reply.device_values.data() != nullptr
                   ? to_tensor(reply.device_values, like)
                   : from_doubles(reply.values, like))
                  .view({2, -1});
  saved_statistics result;
  result.mean = both[0];
  result.inv_std = both[1];
  result.count = reply.count;
  result.pass = reply.pass;
  result.eps = options.eps();
  result.mode = options.eps_mode();
  if (result.mode == eps_mode::clamp)
    result.unclamped = unclamped_of(result.inv_std, options.eps());
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

saved_part_ptr save(const char* layer, const at::Tensor& x, const at::Tensor& y,
                    const arguments& affine) {
  auto part = std::make_shared<saved_part>();
  part->layer = layer;
  // libtorch refuses to save tensors made under `c10::InferenceMode`, as it
  // should for a copy that is differentiated itself. For another copy, they are
  // left out, and a backward pass that needs them says so.
  auto differentiated = c10::GradMode::is_enabled() && affine.requires_grad(x);
  auto is_saved = [&](const at::Tensor& t) {
    return differentiated || !t.is_inference();
  };
  if (is_saved(x))
    part->x = torch::autograd::SavedVariable{x, false};
  part->has_weight = affine.weight.defined();
  if (part->has_weight && is_saved(affine.weight))
    part->weight = torch::autograd::SavedVariable{affine.weight, false};
  part->has_bias = affine.bias.defined();
  if (c10::GradMode::is_enabled())
    part->edges =
        torch::autograd::collect_next_edges(x, affine.weight, affine.bias);
  part->edges.resize(3);
  part->sequence_nr = at::sequence_number::get_and_increment();
  part->stream = current_torch_stream(x.device());
  part->like_y = at::empty({}, y.options()).expand(y.sizes());
  return part;
}

void set_statistics(saved_part& part, saved_statistics statistics) {
  part.statistics = std::move(statistics);
  part.has_statistics.store(true, std::memory_order_release);
}

void set_grad_fn(at::Tensor& y,
                 decltype(torch::autograd::Edge::function) node) {
  if (node)
    torch::autograd::impl::set_gradient_edge(
        y, torch::autograd::Edge{std::move(node), 0});
}

/// One forward call of a layer.
class forward_call {
public:
  /// @param layer names the layer in texts; outlives the call.
  forward_call(const char* layer, const at::Tensor& input, arguments affine,
               const SynchronizedBatchNormOptions& options)
      : layer_{layer},
        x_{with_plain_layout(input)},
        y_{make_like(x_)},
        affine_{std::move(affine)},
        options_{options},
        statistics_type_{
            to_scalar_type(statistics_type(*to_dtype(input.scalar_type())))} {}

  at::Tensor evaluate(const at::Tensor& mean, const at::Tensor& var) {
    auto part = own_part();
    auto saved = constants_of(mean, var, options_, statistics());
    normalize_with(saved);
    own_history(std::move(part), std::move(saved), nullptr);
    return y_;
  }

  /// @param update sees the reply before the output is made.
  template <class Prepare, class Update>
  at::Tensor train(const participant_ptr& seat, Prepare prepare,
                   Update update) {
    if (seat)
      seat->require_pass();
    auto request = moments_of(x_.detach());
    request.has_graph = has_graph();
    prepare(request);
    if (seat && seat->joint())
      return train_jointly(*seat, std::move(request), update);
    auto part = own_part();
    auto reply =
        seat ? seat->run(std::move(request)) : merge_alone(std::move(request));
    own_history(std::move(part), accept(reply, update), seat);
    return y_;
  }

private:
  [[nodiscard]] bool has_graph() const {
    return c10::GradMode::is_enabled() && affine_.requires_grad(x_);
  }

  [[nodiscard]] at::TensorOptions statistics() const {
    return x_.options().dtype(statistics_type_).requires_grad(false);
  }

  template <class Update>
  at::Tensor train_jointly(participant& seat, round_request request,
                           Update update) {
    auto copy = static_cast<std::size_t>(seat.copy_id());
    auto round = seat.rounds();
    auto& joint = *seat.joint();
    auto part = save(layer_, x_, y_, affine_);
    part->pass_is_over = seat.pass_is_over();
    joint.post(copy, round, part);
    try {
      set_statistics(*part, accept(seat.run(std::move(request)), update));
    } catch (...) {
      joint.abandon(round);
      throw;
    }
    auto node = joint.join(copy, round);
    // Other copies may have a graph where this one records none.
    if (c10::GradMode::is_enabled())
      set_grad_fn(y_, std::move(node));
    return y_;
  }

  template <class Update>
  saved_statistics accept(const round_reply& reply, Update update) {
    update(reply);
    auto saved = saved_of(reply, options_, statistics());
    normalize_with(saved);
    return saved;
  }

  void normalize_with(const saved_statistics& saved) {
    if (x_.numel() == 0)
      return;
    channel_parameters parameters;
    parameters.mean = saved.mean.data_ptr();
    parameters.inv_std = saved.inv_std.data_ptr();
    if (affine_.weight.defined())
      parameters.weight = affine_.weight.data_ptr();
    if (affine_.bias.defined())
      parameters.bias = affine_.bias.data_ptr();
    tensor_kernels kernels{x_.device()};
    kernels.normalize(view_of(x_), parameters, mutable_view_of(y_));
  }

  /// The part of the copy's own graph, or null without one: made before
  /// anything is sent or written, as this throws for what libtorch refuses to
  /// save.
  [[nodiscard]] saved_part_ptr own_part() const {
    return has_graph() ? save(layer_, x_, y_, affine_) : nullptr;
  }

  void own_history(saved_part_ptr part, saved_statistics saved,
                   const participant_ptr& seat) {
    if (!part)
      return;
    set_statistics(*part, std::move(saved));
    if (seat)
      part->copy_without_graph = seat->copy_without_graph();
    std::vector<saved_part_ptr> parts{std::move(part)};
    set_grad_fn(y_, make_node<batch_norm_node>(std::move(parts), seat));
  }

  const char* layer_;
  at::Tensor x_;
  at::Tensor y_;
  arguments affine_;
  const SynchronizedBatchNormOptions& options_;
  at::ScalarType statistics_type_;
};

/// The running statistics of a layer, undefined if they are not tracked.
struct running_tensors {
  at::Tensor mean;
  at::Tensor var;
  /// Also undefined if the batches are not counted.
  at::Tensor batches;

  [[nodiscard]] bool on_cpu() const {
    return mean.is_cpu();
  }

  /// Whether a batch changes them. As in libtorch's layer, the average over all
  /// batches stays as it is if they are not counted.
  [[nodiscard]] bool learn(bool cumulative) const {
    return mean.defined() && (!cumulative || batches.defined());
  }
};

/// Puts the layer's options into a copy's message.
void add_options(const SynchronizedBatchNormOptions& options,
                 round_request& out) {
  auto momentum = options.momentum();
  out.eps = options.eps();
  out.mode = options.eps_mode();
  out.momentum = momentum ? *momentum : 0.0;
  out.cumulative = !momentum;
}

std::int64_t count_of(const running_tensors& running, known_counter& counter) {
  if (!running.batches.defined())
    return 0;
  return running.on_cpu() ? running.batches.item<std::int64_t>()
                          : counter.read(running.batches);
}

void require_counter(const char* kind, std::int64_t count) {
  constexpr auto limit = std::numeric_limits<std::int64_t>::max();
  if (count < 0 || count == limit)
    throw error{errc::malformed_message,
                fmt::format("{}: num_batches_tracked: expected 0 to {}, got {}",
                            kind, limit - 1, count)};
}

/// Puts the layer's running statistics into copy 0's message.
void add_running(const char* kind, const running_tensors& running,
                 known_counter& counter, round_request& out) {
  if (!running.learn(out.cumulative))
    return;
  auto both = at::cat({running.mean.detach(), running.var.detach()});
  if (running.on_cpu())
    out.running = to_doubles(both);
  else
    out.device_running = to_array(both);
  out.num_batches_tracked = count_of(running, counter);
  require_counter(kind, out.num_batches_tracked);
}

void require_several_values(const char* kind, std::int64_t count,
                            bool training) {
  if (count == 1)
    throw error{errc::invalid_argument,
                fmt::format("{}: input: expected more than 1 value per channel "
                            "{}, got 1",
                            kind,
                            training
                                ? "over all copies of the group when training"
                                : "in evaluation without running statistics")};
}

/// Copies that join one by one are not compared beforehand. Without copy 0's
/// statistics, those of this copy would never change.
void require_running(const char* kind, const round_reply& reply,
                     const running_tensors& running, bool cumulative) {
  auto none = reply.running.empty() && reply.device_running.data() == nullptr;
  if (none && reply.count != 0 && running.learn(cumulative))
    throw error{errc::invalid_argument,
                fmt::format("{}: running_mean: expected none, as copy 0 tracks "
                            "no statistics, got one",
                            kind)};
}

void take_over(const round_reply& reply, const running_tensors& running,
               known_counter& counter) {
  if (!running.mean.defined())
    return;
  c10::NoGradGuard no_grad;
  if (reply.device_running.data() != nullptr) {
    auto half = reply.device_running.size() / 2;
    overwrite(running.mean, reply.device_running, 0);
    overwrite(running.var, reply.device_running, half);
  } else if (!reply.running.empty()) {
    auto both = from_doubles(reply.running, at::kDouble).view({2, -1});
    running.mean.copy_(both[0]);
    running.var.copy_(both[1]);
  } else {
    return;
  }
  if (!running.batches.defined())
    return;
  if (running.on_cpu())
    running.batches.fill_(reply.num_batches_tracked);
  else
    counter.write(running.batches, reply.num_batches_tracked);
}

} // namespace

torch::Tensor SynchronizedBatchNormBase::run(const torch::Tensor& input,
                                             const call& with) const {
  // Read once: the seat may be left while the pass runs.
  auto own = seat_;
  const auto* name = own ? own->name().c_str() : kind();
  auto seat = with.training ? own : nullptr;
  try {
    check_call(name, input, with.dimensions, with.options,
               {with.weight, with.bias, with.running_mean, with.running_var});
    forward_call here{name, input, {with.weight, with.bias}, with.options};
    if (!with.training && with.running_mean.defined())
      return here.evaluate(with.running_mean, with.running_var);
    running_tensors running;
    if (with.training)
      running = {with.running_mean, with.running_var, with.num_batches_tracked};
    return here.train(
        seat,
        [&](round_request& out) {
          add_options(with.options, out);
          // The other copies' statistics are not used.
          if (!seat || seat->copy_id() == 0)
            add_running(name, running, batches_, out);
        },
        [&](const round_reply& reply) {
          require_several_values(name, reply.count, with.training);
          require_running(name, reply, running, !with.options.momentum());
          take_over(reply, running, batches_);
        });
  } catch (const std::exception& x) {
    if (seat)
      seat->layer_failed(text_of(x));
    throw;
  }
}

} // namespace syncnorm::nn
