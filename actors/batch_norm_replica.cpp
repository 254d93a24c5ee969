#include "syncnorm/batch_norm_replica.hpp"

#include "pass_arguments.hpp"
#include "round_arguments.hpp"

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/moments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace syncnorm {

namespace {

void append(std::vector<named_array>& to, const char* name, channel_array& x) {
  if (!x.empty())
    std::visit([&](auto values) { to.push_back({name, values}); }, x.view());
}

const void* data_or_null(const channel_array& x) {
  return x.empty() ? nullptr : x.data();
}

} // namespace

batch_norm_replica::batch_norm_replica(batch_norm_options options)
    : options_{std::move(options)} {
  options_.validate();
  auto type = options_.type;
  if (options_.affine) {
    weight_ = {type, channels(), 1};
    bias_ = {type, channels(), 0};
  }
  if (options_.affine && !options_.frozen) {
    weight_gradient_ = pending_weight_ = {type, channels()};
    bias_gradient_ = pending_bias_ = {type, channels()};
  }
  if (options_.online) {
    running_mean_ = {dtype::float64, channels(), 0};
    running_m2_ = {dtype::float64, channels(), 0};
  } else if (options_.track_running_stats) {
    running_mean_ = {type, channels(), 0};
    running_var_ = {type, channels(), 1};
  }
  if (options_.where.type == device_type::cpu)
    return;
  if (!options_.stream)
    options_.stream =
        device_stream::borrow(cuda_runtime(), options_.where, nullptr);
  device_.emplace(options_, options_.stream);
}

// -- state --------------------------------------------------------------------

std::vector<named_array> batch_norm_replica::state() {
  bring_to_host();
  host_is_newer_ = true;
  std::vector<named_array> result;
  append(result, "weight", weight_);
  append(result, "bias", bias_);
  append(result, "running_mean", running_mean_);
  append(result, "running_var", running_var_);
  append(result, "running_m2", running_m2_);
  if (options_.track_running_stats)
    result.push_back(
        {"num_batches_tracked", std::span{&num_batches_tracked_, 1}});
  if (options_.online)
    result.push_back(
        {"num_elements_tracked", std::span{&num_elements_tracked_, 1}});
  return result;
}

std::vector<named_array> batch_norm_replica::gradients() {
  bring_to_host();
  host_is_newer_ = true;
  std::vector<named_array> result;
  append(result, "weight", weight_gradient_);
  append(result, "bias", bias_gradient_);
  return result;
}

void batch_norm_replica::zero_gradients() {
  weight_gradient_.fill(0);
  bias_gradient_.fill(0);
  if (!device_)
    return;
  device_->write(detail::device_share::weight_gradient, {});
  device_->write(detail::device_share::bias_gradient, {});
}

statistics_update batch_norm_replica::make_update() const {
  statistics_update result;
  result.eps = options_.eps;
  result.mode = options_.mode;
  result.momentum = options_.momentum.value_or(0);
  result.cumulative = !options_.momentum;
  if (!training_ || !options_.track_running_stats)
    return result;
  result.online = options_.online;
  result.num_batches_tracked = num_batches_tracked_;
  result.num_elements_tracked = num_elements_tracked_;
  if (device_) {
    result.running = device_->array(detail::device_share::running);
    return result;
  }
  std::vector<double> running;
  running.reserve(2 * channels());
  running_mean_.append_to(running);
  spread().append_to(running);
  result.running = double_array{std::move(running)};
  return result;
}

void batch_norm_replica::take_over(const batch_norm_reply& reply) {
  if (!options_.track_running_stats || reply.running.size() == 0)
    return;
  num_batches_tracked_ = reply.num_batches_tracked;
  if (options_.online)
    num_elements_tracked_ =
        reply.later_counts.empty() ? reply.count : reply.later_counts.back();
  if (device_)
    return device_->take_over(reply.running);
  auto running = reply.running.view();
  running_mean_.assign(running.first(channels()));
  spread().assign(running.last(channels()));
}

// -- forward ------------------------------------------------------------------

channel_parameters
batch_norm_replica::parameters(const batch_norm_tape& tape) const noexcept {
  return {tape.mean_.data(), tape.inv_std_.data(), data_or_null(weight_),
          data_or_null(bias_)};
}

detail::pass_arguments batch_norm_replica::arguments() const noexcept {
  return detail::pass_arguments{options_};
}

workspace batch_norm_replica::scratch(std::size_t bytes) {
  if (scratch_.size() < bytes)
    scratch_.resize(bytes);
  return {scratch_.data(), scratch_.size()};
}

batch_norm_message batch_norm_replica::begin_forward(const const_tensor_view& x,
                                                     const tensor_view& y) {
  arguments().require_forward(x, y);
  auto message = measure(x);
  add_update(message);
  return message;
}

batch_norm_message batch_norm_replica::measure(const const_tensor_view& x) {
  return measure({&x, 1});
}

batch_norm_message
batch_norm_replica::measure(std::span<const const_tensor_view> xs) {
  arguments().require_inputs(xs);
  bring_to_device();
  batch_norm_message message;
  message.mode = round_mode::forward;
  message.type = options_.type;
  message.channels = options_.channels;
  message.later_counts.resize(xs.size() - 1);
  if (device_)
    message.values = device_->moments(xs, message);
  else
    message.values = moments_on_host(xs, message);
  return message;
}

void batch_norm_replica::add_update(batch_norm_message& message) {
  bring_to_device();
  message.update = make_update();
}

double_array
batch_norm_replica::moments_on_host(std::span<const const_tensor_view> xs,
                                    batch_norm_message& message) {
  std::vector<double> values(2 * channels() * xs.size());
  for (std::size_t i = 0; i < xs.size(); ++i) {
    auto* mean = values.data() + 2 * channels() * i;
    moments_view out{0,
                     mean,
                     mean + channels(),
                     options_.channels,
                     dtype::float64,
                     options_.where};
    batch_moments(run(), xs[i], out,
                  scratch(batch_moments_workspace(xs[i].layout())));
    detail::count_of(message, i) = out.count;
  }
  return double_array{std::move(values)};
}

batch_norm_tape batch_norm_replica::end_forward(const batch_norm_reply& reply,
                                                const const_tensor_view& x,
                                                const tensor_view& y) {
  auto tape = accept(reply);
  apply(tape, x, y);
  return tape;
}

batch_norm_tape::source batch_norm_replica::source_of_round() const noexcept {
  return options_.online ? batch_norm_tape::source::running
                         : batch_norm_tape::source::all_replicas;
}

void batch_norm_replica::write_tape(batch_norm_tape& tape, std::int64_t count,
                                    std::span<const double> values) const {
  tape.source_ = source_of_round();
  tape.count_ = count;
  tape.device_statistics_ = {};
  for (auto* x : {&tape.mean_, &tape.inv_std_})
    if (x->size() != channels() || x->type() != statistics_type(options_.type))
      *x = {options_.type, channels()};
  tape.mean_.assign(values.first(channels()));
  tape.inv_std_.assign(values.last(channels()));
}

void batch_norm_replica::write_tape(batch_norm_tape& tape, std::int64_t count,
                                    device_array values) const {
  tape.source_ = source_of_round();
  tape.count_ = count;
  tape.device_statistics_ = std::move(values);
}

batch_norm_tape batch_norm_replica::accept(const batch_norm_reply& reply) {
  batch_norm_tape tape;
  accept(reply, {&tape, 1});
  return tape;
}

void batch_norm_replica::accept(const batch_norm_reply& reply,
                                std::span<batch_norm_tape> tapes) {
  arguments().require_forward_reply(reply, tapes.size());
  bring_to_device();
  auto size = 2 * channels();
  device_array there;
  if (device_)
    there = device_->receive(reply.values);
  for (std::size_t i = 0; i < tapes.size(); ++i) {
    auto count = i == 0 ? reply.count : reply.later_counts[i - 1];
    if (device_)
      write_tape(tapes[i], count, there.part(i * size, size));
    else
      write_tape(tapes[i], count, reply.values.view().subspan(i * size, size));
    tapes[i].pass_ = reply.pass == 0 ? 0 : reply.pass + i;
  }
  take_over(reply);
  device_is_newer_ = true;
}

void batch_norm_replica::apply(const batch_norm_tape& tape,
                               const const_tensor_view& x,
                               const tensor_view& y) {
  if (device_)
    device_->normalize(x, tape.device_statistics_, y);
  else
    normalize(run(), x, parameters(tape), y);
}

// -- backward -----------------------------------------------------------------

batch_norm_message batch_norm_replica::begin_backward(
    const const_tensor_view& dy, const const_tensor_view& x,
    const batch_norm_tape& tape, const tensor_view& dx) {
  arguments().require_backward(dy, x, tape, dx);
  bring_to_device();
  batch_norm_message message;
  message.mode = round_mode::backward;
  message.type = options_.type;
  message.channels = options_.channels;
  message.count = x.shape().per_channel();
  message.pass = tape.pass_;
  if (device_)
    message.values = device_->sums(x, dy, tape.device_statistics_);
  else
    message.values = sums_on_host(dy, x, tape);
  return message;
}

double_array batch_norm_replica::sums_on_host(const const_tensor_view& dy,
                                              const const_tensor_view& x,
                                              const batch_norm_tape& tape) {
  channel_array sum_dy{options_.type, channels()};
  channel_array sum_dy_xmu{options_.type, channels()};
  backward_sums sums{sum_dy.data(), sum_dy_xmu.data(),
                     pending_weight_.empty() ? nullptr : pending_weight_.data(),
                     pending_bias_.empty() ? nullptr : pending_bias_.data()};
  backward_reduce(run(), dy, x, parameters(tape), nullptr, sums,
                  scratch(backward_reduce_workspace(x.layout())));
  if (options_.mode == eps_mode::clamp)
    clear_clamped(run(), tape.inv_std_.data(), options_.eps, options_.channels,
                  sum_dy_xmu.type(), sum_dy_xmu.data());
  auto values = sum_dy.widened();
  auto last = sum_dy_xmu.widened();
  values.insert(values.end(), last.begin(), last.end());
  return double_array{std::move(values)};
}

void batch_norm_replica::end_backward(const batch_norm_reply& reply,
                                      const const_tensor_view& dy,
                                      const const_tensor_view& x,
                                      const batch_norm_tape& tape,
                                      const tensor_view& dx) {
  arguments().require_backward_reply(reply);
  if (device_) {
    bring_to_device();
    auto totals = device_->receive(reply.values);
    device_->input_gradient(x, dy, tape.device_statistics_, totals, reply.count,
                            dx);
    device_->add_gradients();
    device_is_newer_ = true;
    return;
  }
  channel_array sum_dy{options_.type, channels()};
  channel_array sum_dy_xmu{options_.type, channels()};
  sum_dy.assign(reply.values.view().first(channels()));
  sum_dy_xmu.assign(reply.values.view().last(channels()));
  backward_input(run(), dy, x, parameters(tape),
                 {sum_dy.data(), sum_dy_xmu.data(), reply.count}, nullptr, dx);
  weight_gradient_.add(pending_weight_);
  bias_gradient_.add(pending_bias_);
}

} // namespace syncnorm
