#include "pass_arguments.hpp"

#include "syncnorm/detail/check_in_place.hpp"
#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <string>

namespace syncnorm::detail {

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

void pass_arguments::require(const char* call, const char* argument,
                             const const_tensor_view& x) const {
  require_kind(call, argument, x);
  if (!same_memory(x.where(), options_->where))
    fail_expected(errc::device_mismatch, options_->name, call, argument,
                  "memory of " + to_string(options_->where),
                  "memory of " + to_string(x.where()));
}

void pass_arguments::require_kind(const char* call, const char* argument,
                                  const const_tensor_view& x) const {
  if (x.shape().channels != options_->channels)
    fail_expected(errc::shape_mismatch, options_->name, call, argument,
                  fmt::format("{} channels", options_->channels),
                  fmt::format("[N, C, S] = {}", to_text(x.shape())));
  if (x.type() != options_->type)
    fail_expected(errc::dtype_mismatch, options_->name, call, argument,
                  to_string(options_->type), to_string(x.type()));
}

void pass_arguments::require_like(const char* call, const char* argument,
                                  const const_tensor_view& view,
                                  const const_tensor_view& x) const {
  require(call, argument, view);
  require_layout(call, argument, view, x);
}

void pass_arguments::require_layout(const char* call, const char* argument,
                                    const const_tensor_view& view,
                                    const const_tensor_view& x) const {
  if (view.shape() != x.shape() || view.format() != x.format())
    throw error{
        errc::shape_mismatch,
        fmt::format("layer {}: {}: {}: expected the layout of x, [N, C, S] = "
                    "{} {}, got {} {}",
                    options_->name, call, argument, to_text(x.shape()),
                    to_string(x.format()), to_text(view.shape()),
                    to_string(view.format()))};
}

void pass_arguments::require_in_place(const char* call, const char* argument,
                                      const const_tensor_view& view,
                                      const char* input,
                                      const const_tensor_view& x) const {
  try {
    check_in_place(call, argument, view, input, x);
  } catch (const error& reason) {
    throw error{reason.code(),
                fmt::format("layer {}: {}", options_->name, reason.what())};
  }
}

void pass_arguments::require_each(std::span<const const_tensor_view> xs,
                                  requirement fits) const {
  if (xs.empty())
    throw error{errc::invalid_argument,
                fmt::format("layer {}: forward: expected 1 batch or more, got "
                            "none",
                            options_->name)};
  if (xs.size() == 1)
    return (this->*fits)("forward", "x", xs[0]);
  for (std::size_t i = 0; i < xs.size(); ++i)
    (this->*fits)("forward", fmt::format("x[{}]", i).c_str(), xs[i]);
}

void pass_arguments::require_to_bring(const const_tensor_view& dy,
                                      const const_tensor_view& x) const {
  require_kind("backward", "dy", dy);
  require_layout("backward", "dy", dy, x);
}

void pass_arguments::require_forward(const const_tensor_view& x,
                                     const tensor_view& y) const {
  require("forward", "x", x);
  require_like("forward", "y", y, x);
  require_in_place("forward", "y", y, "x", x);
}

void pass_arguments::require_backward(const const_tensor_view& dy,
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
                    options_->name, to_string(statistics_type(options_->type)),
                    channels(), to_string(options_->where), to_text(tape))};
}

bool pass_arguments::is_readable(const batch_norm_tape& tape) const {
  auto type = statistics_type(options_->type);
  const auto& there = tape.device_statistics();
  if (on_device())
    return there.size() == 2 * channels() && there.type() == type
           && there.stream().where() == options_->where;
  auto fits = [&](const channel_array& x) {
    return x.size() == channels() && x.type() == type;
  };
  return fits(tape.mean()) && fits(tape.inv_std());
}

// -- replies ------------------------------------------------------------------

void pass_arguments::require_statistics(const char* call, const char* what,
                                        const channel_payload& values,
                                        std::size_t size) const {
  auto type =
      options_->online ? dtype::float64 : statistics_type(options_->type);
  auto readable =
      !values.on_device() || (on_device() && values.array().type() == type);
  if (values.size() == size && readable)
    return;
  throw error{errc::malformed_message,
              fmt::format("layer {}: {}: the reply's {}: expected {} values{}, "
                          "got {}",
                          options_->name, call, what, size,
                          on_device() ? " of " + to_string(type) : "",
                          to_text(values))};
}

void pass_arguments::require_forward_reply(const batch_norm_reply& reply,
                                           std::size_t batches) const {
  if (reply.later_counts.size() + 1 != batches)
    throw error{errc::malformed_message,
                fmt::format("layer {}: forward: expected the statistics of {} "
                            "batches, got {} values of {}",
                            options_->name, batches, reply.values.size(),
                            reply.later_counts.size() + 1)};
  require_statistics("forward", "statistics", reply.values,
                     2 * channels() * batches);
  if (reply.running.size() != 0)
    require_statistics("forward", "running statistics", reply.running,
                       2 * channels());
}

void pass_arguments::require_backward_reply(
    const batch_norm_reply& reply) const {
  require_statistics("backward", "sums", reply.values, 2 * channels());
}

} // namespace syncnorm::detail
