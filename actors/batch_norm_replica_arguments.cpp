// What a replica is asked for, and the replies to it, are checked here.
// Arguments are before a pass begins: once the other replicas have its message,
// none of them can take the round back.

#include "round_arguments.hpp"

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/batch_norm_replica.hpp"
#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <string>

namespace syncnorm {

namespace {

std::string to_text(const tensor_shape& shape) {
  return fmt::format("[{}, {}, {}]", shape.samples, shape.channels,
                     shape.spatial);
}

std::string to_text(const batch_norm_tape& tape) {
  const auto& there = tape.device_statistics();
  auto on_device = there.data() != nullptr;
  return fmt::format("{} statistics of {} channels on {}",
                     to_string(on_device ? there.type() : tape.mean().type()),
                     on_device ? there.size() / 2 : tape.mean().size(),
                     to_string(on_device ? there.stream().where() : device{}));
}

std::string to_text(const channel_payload& values) {
  if (!values.on_device())
    return std::to_string(values.size());
  return fmt::format("{} of {} on {}", values.size(),
                     to_string(values.array().type()),
                     to_string(values.array().stream().where()));
}

[[noreturn]] void fail_expected(errc code, const std::string& layer,
                                const char* call, const char* argument,
                                const std::string& expected,
                                const std::string& got) {
  throw error{code, fmt::format("layer {}: {}: {}: expected {}, got {}", layer,
                                call, argument, expected, got)};
}

} // namespace

void batch_norm_replica::require(const char* call, const char* argument,
                                 const const_tensor_view& x) const {
  require_kind(call, argument, x);
  if (!same_memory(x.where(), options_.where))
    fail_expected(errc::device_mismatch, options_.name, call, argument,
                  "memory of " + to_string(options_.where),
                  "memory of " + to_string(x.where()));
}

void batch_norm_replica::require_kind(const char* call, const char* argument,
                                      const const_tensor_view& x) const {
  if (x.shape().channels != options_.channels)
    fail_expected(errc::shape_mismatch, options_.name, call, argument,
                  fmt::format("{} channels", options_.channels),
                  fmt::format("[N, C, S] = {}", to_text(x.shape())));
  if (x.type() != options_.type)
    fail_expected(errc::dtype_mismatch, options_.name, call, argument,
                  to_string(options_.type), to_string(x.type()));
}

void batch_norm_replica::require_like(const char* call, const char* argument,
                                      const const_tensor_view& view,
                                      const const_tensor_view& x) const {
  require(call, argument, view);
  require_layout(call, argument, view, x);
}

void batch_norm_replica::require_layout(const char* call, const char* argument,
                                        const const_tensor_view& view,
                                        const const_tensor_view& x) const {
  if (view.shape() != x.shape() || view.format() != x.format())
    throw error{
        errc::shape_mismatch,
        fmt::format("layer {}: {}: {}: expected the layout of x, [N, C, S] = "
                    "{} {}, got {} {}",
                    options_.name, call, argument, to_text(x.shape()),
                    to_string(x.format()), to_text(view.shape()),
                    to_string(view.format()))};
}

void batch_norm_replica::require_in_place(const char* call,
                                          const char* argument,
                                          const const_tensor_view& view,
                                          const char* input,
                                          const const_tensor_view& x) const {
  try {
    check_in_place(call, argument, view, input, x);
  } catch (const error& reason) {
    throw error{reason.code(),
                fmt::format("layer {}: {}", options_.name, reason.what())};
  }
}

void batch_norm_replica::require_each(std::span<const const_tensor_view> xs,
                                      requirement fits) const {
  if (xs.empty())
    throw error{errc::invalid_argument,
                fmt::format("layer {}: forward: expected 1 batch or more, got "
                            "none",
                            options_.name)};
  if (xs.size() == 1)
    return (this->*fits)("forward", "x", xs[0]);
  for (std::size_t i = 0; i < xs.size(); ++i)
    (this->*fits)("forward", fmt::format("x[{}]", i).c_str(), xs[i]);
}

void batch_norm_replica::require_to_bring(const const_tensor_view& dy,
                                          const const_tensor_view& x) const {
  require_kind("backward", "dy", dy);
  require_layout("backward", "dy", dy, x);
}

void batch_norm_replica::require_alone(
    std::span<const const_tensor_view> xs) const {
  require_inputs(xs);
  if (!exchanges() || !options_.track_running_stats)
    return;
  statistics_update seen;
  seen.num_batches_tracked = num_batches_tracked_;
  seen.num_elements_tracked = num_elements_tracked_;
  for (const auto& x : xs) {
    auto elements = x.shape().per_channel();
    auto problem = detail::counter_problem(seen, elements);
    if (!problem.empty())
      throw error{errc::malformed_message,
                  fmt::format("layer {}: forward: {}", options_.name, problem)};
    ++seen.num_batches_tracked;
    seen.num_elements_tracked += elements;
  }
}

void batch_norm_replica::require_forward(const const_tensor_view& x,
                                         const tensor_view& y) const {
  require("forward", "x", x);
  require_like("forward", "y", y, x);
  require_in_place("forward", "y", y, "x", x);
}

void batch_norm_replica::require_backward(const const_tensor_view& dy,
                                          const const_tensor_view& x,
                                          const batch_norm_tape& tape,
                                          const tensor_view& dx) const {
  require("backward", "x", x);
  require_like("backward", "dy", dy, x);
  require_like("backward", "dx", dx, x);
  require_in_place("backward", "dx", dx, "dy", dy);
  require_in_place("backward", "dx", dx, "x", x);
  if (!is_readable(tape))
    throw error{
        errc::invalid_argument,
        fmt::format("layer {}: backward: tape: expected that of a "
                    "forward pass of this layer, {} statistics of {} "
                    "channels on {}, got {}",
                    options_.name, to_string(statistics_type(options_.type)),
                    channels(), to_string(options_.where), to_text(tape))};
}

bool batch_norm_replica::is_readable(const batch_norm_tape& tape) const {
  auto type = statistics_type(options_.type);
  const auto& there = tape.device_statistics_;
  if (device_)
    return there.size() == 2 * channels() && there.type() == type
           && there.stream().where() == options_.where;
  auto fits = [&](const channel_array& x) {
    return x.size() == channels() && x.type() == type;
  };
  return fits(tape.mean_) && fits(tape.inv_std_);
}

// -- replies ------------------------------------------------------------------

void batch_norm_replica::require_statistics(const char* call, const char* what,
                                            const channel_payload& values,
                                            std::size_t size) const {
  auto type = options_.online ? dtype::float64 : statistics_type(options_.type);
  auto readable =
      !values.on_device() || (device_ && values.array().type() == type);
  if (values.size() == size && readable)
    return;
  throw error{errc::malformed_message,
              fmt::format("layer {}: {}: the reply's {}: expected {} values{}, "
                          "got {}",
                          options_.name, call, what, size,
                          device_ ? " of " + to_string(type) : "",
                          to_text(values))};
}

void batch_norm_replica::require_reply(const batch_norm_reply& reply,
                                       std::size_t batches) const {
  if (reply.more.size() + 1 != batches)
    throw error{errc::malformed_message,
                fmt::format("layer {}: forward: expected the statistics of {} "
                            "batches, got {} values of {}",
                            options_.name, batches, reply.values.size(),
                            reply.more.size() + 1)};
  require_statistics("forward", "statistics", reply.values,
                     2 * channels() * batches);
  if (reply.running.size() != 0)
    require_statistics("forward", "running statistics", reply.running,
                       2 * channels());
}

} // namespace syncnorm
