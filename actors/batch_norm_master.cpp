#include "syncnorm/batch_norm_master.hpp"

#include "syncnorm/detail/device_merge.hpp"
#include "syncnorm/merge_tree.hpp"
#include "syncnorm/moments.hpp"
#include "syncnorm/sync_master.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

namespace syncnorm {

namespace {

using message = identified<batch_norm_message>;

[[noreturn]] void refuse(errc code, const message& x, const std::string& text) {
  throw error{code, fmt::format("replica {} sent {}", x.identifier, text)};
}

// -- arguments ----------------------------------------------------------------

void require_known(const message& x) {
  const auto& m = x.message;
  if (m.mode.code > static_cast<std::uint8_t>(round_mode::backward))
    refuse(errc::malformed_message, x, fmt::format("mode {}", m.mode.code));
  if (m.type.code > static_cast<std::uint8_t>(dtype::bfloat16))
    refuse(errc::malformed_message, x, fmt::format("dtype {}", m.type.code));
  if (m.channels < 1 || std::uint64_t(m.channels) > double_array::max_size / 2)
    refuse(errc::malformed_message, x, fmt::format("{} channels", m.channels));
  if (m.count < 0)
    refuse(errc::malformed_message, x,
           fmt::format("a count of {} elements", m.count));
  if (m.values.on_device()
      && m.values.array().type() != statistics_type(m.type))
    refuse(errc::dtype_mismatch, x,
           fmt::format("statistics of {} on a device for a {} tensor",
                       to_string(m.values.array().type()), to_string(m.type)));
  if (m.resend)
    return;
  auto expected = 2 * std::size_t(m.channels);
  if (m.values.size() != expected && (m.count != 0 || m.values.size() != 0))
    refuse(errc::malformed_message, x,
           fmt::format("{} values for {} channels, expected {}",
                       m.values.size(), m.channels, expected));
  if (!m.more.empty()
      && (m.mode != round_mode::forward || m.values.on_device()))
    refuse(errc::invalid_argument, x,
           fmt::format("{} batches in one message; only forward passes in host "
                       "memory can share one",
                       m.more.size() + 1));
}

void require_agreement(const message& owner, const message& x) {
  const auto& a = owner.message;
  const auto& b = x.message;
  if (a.mode != b.mode)
    refuse(errc::invalid_argument, x,
           fmt::format("a {} message, replica {} a {} message; all replicas "
                       "must make the same calls in the same order",
                       to_string(b.mode), owner.identifier, to_string(a.mode)));
  if (a.call != b.call)
    refuse(errc::invalid_argument, x,
           fmt::format("sums of call {} of the layer, replica {} of call {}; "
                       "all replicas must pass backward through their calls in "
                       "the same order",
                       b.call, owner.identifier, a.call));
  if (a.channels != b.channels)
    refuse(errc::shape_mismatch, x,
           fmt::format("{} channels, replica {} {} channels", b.channels,
                       owner.identifier, a.channels));
  if (a.type != b.type)
    refuse(errc::dtype_mismatch, x,
           fmt::format("{}, replica {} {}", to_string(b.type), owner.identifier,
                       to_string(a.type)));
  if (a.more.size() != b.more.size() && !a.resend && !b.resend)
    refuse(errc::invalid_argument, x,
           fmt::format("{} batches in one message, replica {} {}; all replicas "
                       "must be asked for the same ones together",
                       b.more.size() + 1, owner.identifier, a.more.size() + 1));
}

/// `total` is what all messages were merged into, with the owner's update.
void require_update(std::int64_t identifier, const batch_norm_message& total) {
  const message owner{identifier, total};
  const auto& update = total.update;
  auto count = total.count;
  if (update.mode.code > static_cast<std::uint8_t>(eps_mode::clamp))
    refuse(errc::malformed_message, owner,
           fmt::format("eps mode {}", update.mode.code));
  auto expected = 2 * std::size_t(owner.message.channels);
  if (update.running.size() != 0 && update.running.size() != expected)
    refuse(errc::malformed_message, owner,
           fmt::format("{} running statistics, expected {} or none",
                       update.running.size(), expected));
  if (update.running.size() != 0
      && update.running.on_device() != total.values.on_device()
      && total.values.size() != 0)
    refuse(errc::device_mismatch, owner,
           "running statistics and values in memory of different devices");
  if (update.online && update.running.on_device())
    refuse(errc::device_mismatch, owner, "online statistics on a device");
  auto limit = std::numeric_limits<std::int64_t>::max();
  if (update.num_batches_tracked < 0 || update.num_batches_tracked == limit)
    refuse(errc::malformed_message, owner,
           fmt::format("{} batches tracked", update.num_batches_tracked));
  if (update.online && update.running.size() != expected)
    refuse(errc::malformed_message, owner,
           fmt::format("{} online statistics, expected {}",
                       update.running.size(), expected));
  if (update.num_elements_tracked < 0
      || update.num_elements_tracked > limit - count)
    refuse(errc::malformed_message, owner,
           fmt::format("{} elements tracked before {} more",
                       update.num_elements_tracked, count));
}

std::int64_t total_count(std::span<const message> messages) {
  std::int64_t total = 0;
  for (const auto& x : messages) {
    if (x.message.count > std::numeric_limits<std::int64_t>::max() - total)
      refuse(errc::malformed_message, x,
             fmt::format("a count of {} elements, too many in all",
                         x.message.count));
    total += x.message.count;
  }
  return total;
}

// -- forward ------------------------------------------------------------------

/// Mean and M2 of `messages`, whose places in the tree are those of
/// `merge_moments`.
double_array merge_row(std::span<const message> messages, std::int64_t count) {
  auto channels = messages[0].message.channels;
  std::vector<double> result(2 * std::size_t(channels));
  // Stands in for the values of replicas without any: a part keeps its place in
  // the tree.
  std::vector<double> nothing;
  std::vector<const_moments_view> parts;
  for (const auto& x : messages) {
    const auto* values = x.message.values.data();
    if (values == nullptr) {
      nothing.resize(result.size());
      values = nothing.data();
    }
    parts.push_back({x.message.count,
                     values,
                     values + channels,
                     channels,
                     dtype::float64,
                     {}});
  }
  moments_view out{count,    result.data(),  result.data() + channels,
                   channels, dtype::float64, {}};
  merge_moments({}, parts, out);
  return double_array{std::move(result)};
}

/// Mean and M2 of all elements of `messages`.
double_array merge_all(std::span<const message> messages, std::int64_t count) {
  if (count == 0)
    return {};
  if (detail::is_row(messages))
    return merge_row(messages, count);
  auto left = detail::split_of(messages);
  std::array<message, 2> halves;
  for (auto& x : halves) {
    auto some =
        &x == halves.data() ? messages.first(left) : messages.subspan(left);
    x.message.channels = messages[0].message.channels;
    x.message.count = total_count(some);
    x.message.values = merge_all(some, x.message.count);
  }
  return merge_row(halves, count);
}

/// The reply to what all messages were merged into.
batch_norm_reply finish_forward(const batch_norm_message& total) {
  const auto& update = total.update;
  auto channels = total.channels;
  auto count = total.count;
  std::vector<double> values(total.values.begin(), total.values.end());
  values.resize(2 * std::size_t(channels));
  auto* mean = values.data();
  auto* inv_std = mean + channels;
  std::vector<double> running(update.running.begin(), update.running.end());
  auto batches = detail::batches_after(update, count);
  auto options = detail::finalize_options_of(update, batches);
  running_view view;
  if (!running.empty())
    view = {running.data(), running.data() + channels};
  finalize_moments({}, {count, mean, inv_std, channels, dtype::float64, {}},
                   options, mean, inv_std, view);
  return {count,
          double_array{std::move(values)},
          double_array{std::move(running)},
          batches,
          false,
          {}};
}

/// As `finish_forward`, with the moments of all batches before as one part
/// more.
batch_norm_reply finish_online(const batch_norm_message& batch) {
  const auto& update = batch.update;
  auto channels = batch.channels;
  std::vector<double> seen(update.running.begin(), update.running.end());
  moments_view total{update.num_elements_tracked,
                     seen.data(),
                     seen.data() + channels,
                     channels,
                     dtype::float64,
                     {}};
  if (batch.count != 0) {
    const auto* more = batch.values.data();
    std::array<const_moments_view, 2> parts{
        total, const_moments_view{batch.count, more, more + channels, channels,
                                  dtype::float64, device{}}};
    merge_moments({}, parts, total);
  }
  std::vector<double> values(2 * std::size_t(channels));
  finalize_moments({}, total, {.eps = update.eps, .mode = update.mode},
                   values.data(), values.data() + channels, {});
  return {total.count,
          double_array{std::move(values)},
          double_array{std::move(seen)},
          update.num_batches_tracked + (batch.count != 0 ? 1 : 0),
          false,
          {}};
}

// -- backward -----------------------------------------------------------------

/// The sums over `messages`; none if nobody has sent any.
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

// -- batches behind the first -------------------------------------------------

/// The batch behind the first that stands at `i` in all `messages`, merged.
batch_norm_part merge_part(std::span<const message> messages, std::size_t i) {
  std::vector<message> parts;
  parts.reserve(messages.size());
  for (const auto& [identifier, x] : messages) {
    auto& part = parts.emplace_back();
    part.identifier = identifier;
    part.message.type = x.type;
    part.message.channels = x.channels;
    part.message.count = x.more[i].count;
    part.message.values = x.more[i].values;
    require_known(part);
  }
  auto count = total_count(parts);
  return {count, merge_all(parts, count)};
}

batch_norm_reply finish_host(const batch_norm_message& total) {
  return total.update.online ? finish_online(total) : finish_forward(total);
}

/// As `finish_host`, one batch after the other.
batch_norm_reply finish_parts(std::int64_t identifier,
                              batch_norm_message total) {
  auto parts = std::exchange(total.more, {});
  auto result = finish_host(total);
  for (auto& part : parts) {
    total.count = part.count;
    total.values = std::move(part.values);
    total.update.running = std::move(result.running);
    total.update.num_batches_tracked = result.num_batches_tracked;
    if (total.update.online)
      total.update.num_elements_tracked =
          result.more.empty() ? result.count : result.more.back().count;
    require_update(identifier, total);
    auto next = finish_host(total);
    result.more.push_back({next.count, std::move(next.values)});
    result.running = std::move(next.running);
    result.num_batches_tracked = next.num_batches_tracked;
  }
  return result;
}

// -- where the messages are ---------------------------------------------------

/// Makes `stream` one of the owner's device, if its values are on one.
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

/// `merge_messages` on a stream of the merging actor's own, which is made when
/// it is needed.
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
    require_known(x);
    require_agreement(messages[0], x);
  }
  const auto& first = messages[0].message;
  if (messages.size() == 1)
    return first;
  auto result = first;
  result.count = total_count(messages);
  result.resend = is_mixed(messages);
  if (result.resend) {
    result.count = 0;
    result.values = {};
    result.update = {};
    result.more.clear();
  } else if (first.values.on_device()) {
    result.values = detail::merge_on_device(messages, on);
  } else if (first.mode == round_mode::forward) {
    result.values = merge_all(messages, result.count);
  } else {
    result.values = add_all(messages);
  }
  for (std::size_t i = 0; i < result.more.size(); ++i)
    result.more[i] = merge_part(messages, i);
  return result;
}

batch_norm_reply merge_round(std::span<const message> messages,
                             const device_stream& on) {
  auto total = merge_messages(messages, on);
  if (total.resend)
    return ask_to_resend();
  auto forward = total.mode == round_mode::forward;
  if (forward)
    require_update(messages[0].identifier, total);
  if (total.values.on_device())
    return detail::finish_on_device(total, on);
  if (!forward)
    return finish_backward(std::move(total));
  return finish_parts(messages[0].identifier, std::move(total));
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
          [stream](batch_norm_message total) {
            std::array one{identified<batch_norm_message>{0, std::move(total)}};
            follow_owner(one, *stream);
            return merge_round(one, *stream);
          },
      .participants = participants};
}

batch_norm_master_actor spawn_batch_norm_master(caf::actor_system& system,
                                                sync_options options,
                                                std::int64_t participants) {
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
  // On devices each relay uses the stream of its first message: several of them
  // share this function.
  return std::make_shared<batch_norm_relays>(
      system, master, options, copies,
      [](std::span<message> messages) { return merge_messages(messages); });
}

} // namespace syncnorm
