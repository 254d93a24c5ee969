#include "syncnorm/batch_norm_master.hpp"

#include "device_merge.hpp"
#include "round_statistics.hpp"

#include "syncnorm/merge_tree.hpp"
#include "syncnorm/moments.hpp"
#include "syncnorm/sync_master.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>

namespace syncnorm {

namespace {

using message = detail::round_message;
using detail::batches_of;
using detail::count_of;
using detail::total_count;
using detail::values_of;

// -- forward ------------------------------------------------------------------

/// Merges mean and M2 of one batch over several messages.
class batch_merger {
public:
  explicit batch_merger(std::int64_t channels)
      : channels_{channels},
        nothing_(2 * std::size_t(channels)) {}

  /// Writes them to `out`, which holds zeros.
  void merge(std::span<const message> messages, std::size_t batch,
             double* out) {
    if (detail::is_row(messages))
      return merge_row(messages, batch, out);
    auto left = detail::split_of(messages);
    std::array halves{messages.first(left), messages.subspan(left)};
    std::vector<double> values(halves.size() * nothing_.size());
    std::vector<const_moments_view> parts;
    for (std::size_t i = 0; i < halves.size(); ++i) {
      auto* half = values.data() + i * nothing_.size();
      merge(halves[i], batch, half);
      parts.push_back(view_of(total_count(halves[i], batch), half));
    }
    merge_parts(parts, out);
  }

private:
  /// `messages` have the same places in the tree as in `merge_moments`.
  void merge_row(std::span<const message> messages, std::size_t batch,
                 double* out) {
    parts_.clear();
    for (const auto& x : messages) {
      // A part without values keeps its place in the tree.
      const auto* values = values_of(x.message, batch);
      parts_.push_back(view_of(count_of(x.message, batch),
                               values != nullptr ? values : nothing_.data()));
    }
    merge_parts(parts_, out);
  }

  void merge_parts(std::span<const const_moments_view> parts, double* out) {
    moments_view total{0, out, out + channels_, channels_, dtype::float64, {}};
    merge_moments({}, parts, total);
  }

  [[nodiscard]] const_moments_view view_of(std::int64_t count,
                                           const double* values) const {
    return {count, values, values + channels_, channels_, dtype::float64, {}};
  }

  std::int64_t channels_;
  std::vector<double> nothing_;
  std::vector<const_moments_view> parts_;
};

/// Merges all batches of `messages` into `result`, which has their counts
/// already.
void merge_batches(std::span<const message> messages,
                   batch_norm_message& result) {
  result.values = {};
  if (result.count == 0 && result.later_counts.empty())
    return;
  auto size = 2 * std::size_t(result.channels);
  std::vector<double> values(size * batches_of(result));
  batch_merger merger{result.channels};
  for (std::size_t i = 0; i < batches_of(result); ++i)
    if (count_of(result, i) != 0)
      merger.merge(messages, i, values.data() + i * size);
  result.values = double_array{std::move(values)};
}

/// Turns the moments at `values` into mean and inv_std, and learns from them.
void finish_batch(std::int64_t count, statistics_update& update,
                  std::span<double> running, double* values,
                  std::int64_t channels) {
  update.num_batches_tracked = detail::batches_after(update, count);
  running_view learned;
  if (!running.empty())
    learned = {running.data(), running.data() + channels};
  finalize_moments(
      {}, {count, values, values + channels, channels, dtype::float64, {}},
      detail::finalize_options_of(update, update.num_batches_tracked), values,
      values + channels, learned);
}

/// Like `finish_batch`, with the moments `seen` of all earlier batches as one
/// more part.
void finish_online(std::int64_t count, statistics_update& update,
                   std::span<double> seen, double* values,
                   std::int64_t channels) {
  auto view = [channels](std::int64_t elements, double* mean) {
    return moments_view{elements, mean,           mean + channels,
                        channels, dtype::float64, {}};
  };
  auto total = view(update.num_elements_tracked, seen.data());
  detail::learn_online(view(count, values), total, update.num_batches_tracked,
                       update.eps, update.mode);
  update.num_elements_tracked = total.count;
}

/// Rounds what the replicas keep in float32, as they do between two messages.
void round_as_kept(dtype type, std::span<double> running) {
  if (statistics_type(type) == dtype::float32)
    for (auto& x : running)
      x = static_cast<float>(x);
}

/// The reply to the merged messages: one batch after the other.
batch_norm_reply finish_forward(std::int64_t owner, batch_norm_message total) {
  auto size = 2 * std::size_t(total.channels);
  std::vector<double> values(total.values.begin(), total.values.end());
  values.resize(size * batches_of(total));
  auto& update = total.update;
  std::vector<double> running(update.running.begin(), update.running.end());
  for (std::size_t i = 0; i < batches_of(total); ++i) {
    auto& count = count_of(total, i);
    auto* at = values.data() + i * size;
    detail::require_counters(owner, update, count);
    if (update.online) {
      finish_online(count, update, running, at, total.channels);
      count = update.num_elements_tracked;
    } else {
      if (i != 0)
        round_as_kept(total.type, running);
      finish_batch(count, update, running, at, total.channels);
    }
  }
  return {total.count,
          double_array{std::move(values)},
          double_array{std::move(running)},
          update.num_batches_tracked,
          false,
          std::move(total.later_counts)};
}

// -- backward -----------------------------------------------------------------

/// The sums over `messages`; empty if nobody has sent any.
double_array add_all(std::span<const message> messages) {
  std::vector<identified<std::span<const double>>> parts;
  auto some = false;
  for (const auto& [identifier, x] : messages) {
    parts.push_back({identifier, x.values.view()});
    some = some || x.values.size() != 0;
  }
  if (!some)
    return {};
  std::vector<double> sums(2 * std::size_t(messages[0].message.channels));
  add_tree(std::move(parts), std::span{sums});
  return double_array{std::move(sums)};
}

batch_norm_reply finish_backward(batch_norm_message total) {
  if (total.values.size() == 0)
    total.values =
        double_array{std::vector<double>(2 * std::size_t(total.channels))};
  return {total.count, std::move(total.values), {}, 0, false, {}};
}

// -- where the messages are ---------------------------------------------------

/// Makes `stream` a stream of the owner's device, if the owner's values are on
/// one.
void follow_owner(std::span<const message> messages, device_stream& stream) {
  const auto& values = messages[0].message.values;
  if (!values.on_device())
    return;
  const auto& owner = values.array().stream();
  if (!stream || &stream.runtime() != &owner.runtime()
      || stream.where() != owner.where())
    stream = device_stream::make(owner.runtime(), owner.where());
}

/// Whether some of `messages`, but not all, are on devices.
bool is_mixed(std::span<const message> messages) {
  auto devices = std::ranges::count_if(
      messages, [](const auto& x) { return x.message.values.on_device(); });
  return (devices != 0 && std::cmp_not_equal(devices, messages.size()))
         || std::ranges::any_of(messages,
                                [](const auto& x) { return x.message.resend; });
}

batch_norm_reply ask_to_resend() {
  batch_norm_reply result;
  result.resend = true;
  return result;
}

/// Numbers the forward passes of a master, so that no backward pass adds up the
/// sums of several of them.
class pass_counter {
public:
  void number(batch_norm_reply& reply) {
    if (reply.resend)
      return;
    reply.pass = last_ + 1;
    last_ += 1 + reply.later_counts.size();
  }

private:
  std::uint64_t last_ = 0;
};

/// `merge_messages` on the merging actor's own stream, which is made when
/// needed.
auto merge_on_own_stream(const std::shared_ptr<device_stream>& stream) {
  return [stream](std::span<message> messages) {
    follow_owner(messages, *stream);
    return merge_messages(messages, *stream);
  };
}

} // namespace

batch_norm_message merge_messages(std::span<const message> messages,
                                  const device_stream& on) {
  for (const auto& x : messages) {
    detail::require_known(x);
    detail::require_agreement(messages[0], x);
  }
  const auto& first = messages[0].message;
  if (messages.size() == 1)
    return first;
  auto result = first;
  result.resend = is_mixed(messages);
  if (result.resend) {
    result.count = 0;
    result.values = {};
    result.update = {};
    result.later_counts.clear();
    return result;
  }
  for (std::size_t i = 0; i < batches_of(result); ++i)
    count_of(result, i) = total_count(messages, i);
  if (first.values.on_device()) {
    result.values = detail::merge_on_device(messages, on);
  } else if (first.mode == round_mode::forward) {
    merge_batches(messages, result);
  } else {
    result.values = add_all(messages);
  }
  return result;
}

batch_norm_reply merge_round(std::span<const message> messages,
                             const device_stream& on) {
  auto total = merge_messages(messages, on);
  if (total.resend)
    return ask_to_resend();
  auto forward = total.mode == round_mode::forward;
  auto owner = messages[0].identifier;
  if (forward)
    detail::require_update(owner, total);
  if (!total.values.on_device())
    return forward ? finish_forward(owner, std::move(total))
                   : finish_backward(std::move(total));
  return detail::finish_on_device(owner, total, on);
}

batch_norm_reply merge_round(batch_norm_message only) {
  std::array one{message{0, std::move(only)}};
  return merge_round(one);
}

sync_reduction<batch_norm_message, batch_norm_reply>
batch_norm_reduction(const sync_options& options, std::int64_t participants) {
  if (participants < 1)
    throw error{errc::invalid_argument,
                fmt::format("layer {}: expected 1 participant or more, got {}",
                            options.layer, participants)};
  auto stream = std::make_shared<device_stream>();
  return {
      .merge = merge_on_own_stream(stream),
      .finish =
          [stream, passes = pass_counter{}](batch_norm_message total) mutable {
            auto forward = total.mode == round_mode::forward;
            std::array one{identified<batch_norm_message>{0, std::move(total)}};
            follow_owner(one, *stream);
            auto reply = merge_round(one, *stream);
            if (forward)
              passes.number(reply);
            return reply;
          },
      .participants = participants};
}

batch_norm_master_actor spawn_batch_norm_master(caf::actor_system& system,
                                                sync_options options,
                                                std::int64_t participants) {
  options.policy = options.policy.value_or(failure_policy::fail_round);
  options = resolve(std::move(options), system.config());
  auto reduction = batch_norm_reduction(options, participants);
  return spawn_sync_master<batch_norm_message, batch_norm_reply>(
      system, std::move(options), std::move(reduction));
}

batch_norm_master_actor
spawn_batch_norm_relay(caf::actor_system& system,
                       const batch_norm_master_actor& parent, std::string layer,
                       replica_range range) {
  return spawn_sync_relay<batch_norm_message, batch_norm_reply>(
      system, parent, std::move(layer), range,
      merge_on_own_stream(std::make_shared<device_stream>()));
}

std::shared_ptr<batch_norm_relays>
spawn_batch_norm_relays(caf::actor_system& system,
                        const batch_norm_master_actor& master,
                        const sync_options& options, std::int64_t copies) {
  // On devices, each relay uses the stream of its first message: several relays
  // share this function.
  return std::make_shared<batch_norm_relays>(
      system, master, options, copies,
      [](std::span<message> messages) { return merge_messages(messages); });
}

} // namespace syncnorm
