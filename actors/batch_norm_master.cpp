#include "syncnorm/batch_norm_master.hpp"

#include "syncnorm/moments.hpp"
#include "syncnorm/sync_master.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

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
  auto expected = 2 * std::size_t(m.channels);
  if (m.values.size() != expected && (m.count != 0 || m.values.size() != 0))
    refuse(errc::malformed_message, x,
           fmt::format("{} values for {} channels, expected {}",
                       m.values.size(), m.channels, expected));
}

void require_agreement(const message& owner, const message& x) {
  const auto& a = owner.message;
  const auto& b = x.message;
  if (a.mode != b.mode)
    refuse(errc::invalid_argument, x,
           fmt::format("a {} message, replica {} a {} message; all replicas "
                       "must make the same calls in the same order",
                       to_string(b.mode), owner.identifier, to_string(a.mode)));
  if (a.channels != b.channels)
    refuse(errc::shape_mismatch, x,
           fmt::format("{} channels, replica {} {} channels", b.channels,
                       owner.identifier, a.channels));
  if (a.type != b.type)
    refuse(errc::dtype_mismatch, x,
           fmt::format("{}, replica {} {}", to_string(b.type), owner.identifier,
                       to_string(a.type)));
}

void require_update(const message& owner, std::int64_t count) {
  const auto& update = owner.message.update;
  if (update.mode.code > static_cast<std::uint8_t>(eps_mode::clamp))
    refuse(errc::malformed_message, owner,
           fmt::format("eps mode {}", update.mode.code));
  auto expected = 2 * std::size_t(owner.message.channels);
  if (update.running.size() != 0 && update.running.size() != expected)
    refuse(errc::malformed_message, owner,
           fmt::format("{} running statistics, expected {} or none",
                       update.running.size(), expected));
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

/// Mean and M2 of the whole batch.
std::vector<double> merge_all(std::span<const message> messages,
                              std::int64_t count) {
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
  return result;
}

batch_norm_reply merge_forward(std::span<const message> messages,
                               std::int64_t count) {
  const auto& update = messages[0].message.update;
  auto channels = messages[0].message.channels;
  auto values = merge_all(messages, count);
  auto* mean = values.data();
  auto* inv_std = mean + channels;
  std::vector<double> running(update.running.begin(), update.running.end());
  auto batches =
      update.num_batches_tracked + (count != 0 && !running.empty() ? 1 : 0);
  finalize_options options{
      .eps = update.eps, .mode = update.mode, .momentum = update.momentum};
  if (update.cumulative)
    options.momentum = batches == 0 ? 0.0 : 1.0 / double(batches);
  running_view view;
  if (!running.empty())
    view = {running.data(), running.data() + channels};
  finalize_moments({}, {count, mean, inv_std, channels, dtype::float64, {}},
                   options, mean, inv_std, view);
  return {count, double_array{std::move(values)},
          double_array{std::move(running)}, batches};
}

/// As `merge_forward`, with the moments of all batches before as one part more.
batch_norm_reply merge_online(std::span<const message> messages,
                              std::int64_t count) {
  const auto& update = messages[0].message.update;
  auto channels = messages[0].message.channels;
  auto batch = merge_all(messages, count);
  std::vector<double> seen(update.running.begin(), update.running.end());
  auto view_of = [channels](std::int64_t n, double* values) {
    return moments_view{n,        values,         values + channels,
                        channels, dtype::float64, {}};
  };
  auto total = view_of(update.num_elements_tracked, seen.data());
  std::array<const_moments_view, 2> parts{total, view_of(count, batch.data())};
  merge_moments({}, parts, total);
  std::vector<double> values(seen);
  finalize_moments({}, total, {.eps = update.eps, .mode = update.mode},
                   values.data(), values.data() + channels, {});
  return {total.count, double_array{std::move(values)},
          double_array{std::move(seen)},
          update.num_batches_tracked + (count != 0 ? 1 : 0)};
}

// -- backward -----------------------------------------------------------------

void add(double* a, const double_array& b) {
  for (std::size_t i = 0; i < b.size(); ++i)
    a[i] += b[i];
}

/// The sums of `messages` along the tree of `merge_moments`: neighbours at
/// distance 1, then 2, then 4.
std::vector<double> add_all(std::span<const message> messages) {
  auto size = 2 * std::size_t(messages[0].message.channels);
  std::vector<std::vector<double>> sums;
  for (std::size_t i = 0; i < messages.size(); i += 2) {
    const auto& x = messages[i].message.values;
    auto& sum = sums.emplace_back(x.begin(), x.end());
    sum.resize(size);
    if (i + 1 < messages.size())
      add(sum.data(), messages[i + 1].message.values);
  }
  for (std::size_t stride = 1; stride < sums.size(); stride *= 2)
    for (std::size_t i = 0; i + stride < sums.size(); i += 2 * stride)
      for (std::size_t j = 0; j < size; ++j)
        sums[i][j] += sums[i + stride][j];
  return std::move(sums[0]);
}

std::string list(std::span<const message> messages) {
  std::vector<std::int64_t> identifiers;
  for (const auto& x : messages)
    identifiers.push_back(x.identifier);
  return fmt::format("{}", fmt::join(identifiers, ", "));
}

} // namespace

batch_norm_reply merge_round(std::span<const message> messages) {
  for (const auto& x : messages) {
    require_known(x);
    require_agreement(messages[0], x);
  }
  auto count = total_count(messages);
  if (messages[0].message.mode == round_mode::backward)
    return {count, double_array{add_all(messages)}, {}, 0};
  require_update(messages[0], count);
  return messages[0].message.update.online ? merge_online(messages, count)
                                           : merge_forward(messages, count);
}

sync_callback<batch_norm_message, batch_norm_reply>
batch_norm_callback(const sync_options& options, std::int64_t participants) {
  if (participants < 1)
    throw error{errc::invalid_argument,
                fmt::format("layer {}: expected 1 participant or more, got {}",
                            options.layer, participants)};
  auto fixed = options.policy.value_or(failure_policy::fail_round)
               == failure_policy::fail_round;
  return [fixed, participants](std::span<message> messages) {
    if (fixed && std::cmp_not_equal(messages.size(), participants))
      throw error{errc::unregistered,
                  fmt::format("{} replicas were to take part, but only {} are "
                              "registered: {}",
                              participants, messages.size(), list(messages))};
    auto reply = merge_round(messages);
    std::vector<identified<batch_norm_reply>> replies;
    for (const auto& x : messages)
      replies.push_back({x.identifier, reply});
    return replies;
  };
}

batch_norm_master_actor spawn_batch_norm_master(caf::actor_system& system,
                                                sync_options options,
                                                std::int64_t participants) {
  options = resolve(std::move(options), system.config());
  auto callback = batch_norm_callback(options, participants);
  return spawn_sync_master<batch_norm_message, batch_norm_reply>(
      system, std::move(options), std::move(callback));
}

} // namespace syncnorm
