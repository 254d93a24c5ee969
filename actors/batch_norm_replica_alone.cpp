// The passes of a replica that is the only one, or that needs no other.

#include "pass_arguments.hpp"
#include "round_arguments.hpp"
#include "round_statistics.hpp"

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/batch_norm_master.hpp"
#include "syncnorm/batch_norm_replica.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/moments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace syncnorm {

batch_norm_tape batch_norm_replica::running_tape() {
  batch_norm_tape tape;
  tape.source_ = batch_norm_tape::source::running;
  if (device_) {
    tape.device_statistics_ =
        device_->running_tape(options_.online ? num_elements_tracked_ : 1);
    return tape;
  }
  auto mean = running_mean_.widened();
  auto inv_std = spread().widened();
  // One element's M2 is its variance.
  std::int64_t count = 1;
  if (num_elements_tracked_ != 0)
    count = num_elements_tracked_;
  else if (options_.online)
    std::ranges::fill(inv_std, 1.0);
  finalize_moments({},
                   {count, mean.data(), inv_std.data(), options_.channels,
                    dtype::float64, device{}},
                   {options_.eps, options_.mode, 0}, mean.data(),
                   inv_std.data(), {});
  tape.mean_ = {options_.type, channels()};
  tape.inv_std_ = {options_.type, channels()};
  tape.mean_.assign(mean);
  tape.inv_std_.assign(inv_std);
  return tape;
}

/// Does what a master's round of this replica alone would do, without a
/// message: merges the batch into the statistics in place.
void batch_norm_replica::learn_alone(const const_tensor_view& x,
                                     batch_norm_tape& tape) {
  batch_.resize(2 * channels());
  auto view = [this](std::int64_t count, void* mean, void* m2) {
    return moments_view{count, mean, m2, options_.channels, dtype::float64, {}};
  };
  auto batch = view(0, batch_.data(), batch_.data() + channels());
  batch_moments(run(), x, batch, scratch(batch_moments_workspace(x.layout())));
  auto total =
      view(num_elements_tracked_, running_mean_.data(), running_m2_.data());
  detail::learn_online(batch, total, num_batches_tracked_, options_.eps,
                       options_.mode);
  num_elements_tracked_ = total.count;
  write_tape(tape, total.count, batch_);
}

void batch_norm_replica::require_alone(
    std::span<const const_tensor_view> xs) const {
  arguments().require_inputs(xs);
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

batch_norm_tape batch_norm_replica::forward_alone(const const_tensor_view& x,
                                                  const tensor_view& y,
                                                  batch_norm_tape reused) {
  require_alone({&x, 1});
  if (exchanges() && options_.online && !device_) {
    arguments().require_forward(x, y);
    learn_alone(x, reused);
    apply(reused, x, y);
    return reused;
  }
  if (exchanges() || running_mean_.empty()) {
    auto tape = end_forward(merge_round(begin_forward(x, y)), x, y);
    if (!options_.online)
      tape.source_ = batch_norm_tape::source::this_replica;
    return tape;
  }
  arguments().require_forward(x, y);
  bring_to_device();
  auto tape = running_tape();
  apply(tape, x, y);
  return tape;
}

void batch_norm_replica::backward_alone(const const_tensor_view& dy,
                                        const const_tensor_view& x,
                                        const batch_norm_tape& tape,
                                        const tensor_view& dx) {
  auto message = begin_backward(dy, x, tape, dx);
  if (tape.source_ != batch_norm_tape::source::running)
    return end_backward(merge_round(std::move(message)), dy, x, tape, dx);
  // The statistics are constants: nothing flows back through them.
  batch_norm_reply nothing;
  nothing.count = message.count;
  nothing.values = double_array{std::vector<double>(2 * channels())};
  end_backward(nothing, dy, x, tape, dx);
}

} // namespace syncnorm
