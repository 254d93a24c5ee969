#include "device_merge.hpp"

#include "round_statistics.hpp"

#include "syncnorm/merge_tree.hpp"
#include "syncnorm/moments.hpp"

#include <array>
#include <utility>
#include <vector>

namespace syncnorm::detail {

namespace {

using message = identified<batch_norm_message>;

/// One of the batches that share the messages, from each message.
std::vector<message> batch_of(std::span<const message> messages,
                              std::size_t batch) {
  std::vector<message> result;
  result.reserve(messages.size());
  for (const auto& [identifier, from] : messages) {
    auto size = 2 * static_cast<std::size_t>(from.channels);
    batch_norm_message one;
    one.mode = from.mode;
    one.channels = from.channels;
    one.count = count_of(from, batch);
    one.values = from.values.array().part(batch * size, size);
    result.push_back({identifier, std::move(one)});
  }
  return result;
}

/// The messages with their values on the device of `stream`.
std::vector<message> bring_to(const device_stream& stream,
                              std::span<const message> messages) {
  std::vector<message> result{messages.begin(), messages.end()};
  for (auto& x : result)
    x.message.values = x.message.values.array().on_device_of(stream);
  return result;
}

/// The values of some messages while `stream`, of their device, reads them.
class values_reading {
public:
  values_reading(std::span<const message> messages,
                 const device_stream& stream) {
    for (const auto& x : messages)
      readings_.push_back(x.message.values.array().read_on(stream));
  }

  [[nodiscard]] const void* at(std::size_t message, std::size_t i) const {
    return readings_[message].at(i);
  }

private:
  std::vector<device_reading> readings_;
};

void merge_moments_of(std::span<const message> messages,
                      const device_array& out, const device_stream& stream) {
  values_reading values{messages, stream};
  auto channels = messages[0].message.channels;
  auto half = static_cast<std::size_t>(channels);
  std::vector<const_moments_view> parts;
  for (std::size_t i = 0; i < messages.size(); ++i)
    parts.push_back({messages[i].message.count, values.at(i, 0),
                     values.at(i, half), channels, out.type(), stream.where()});
  moments_view total{0,        out.data(), out.at(half),
                     channels, out.type(), stream.where()};
  stream.runtime().merge_moments(stream.run(), parts, total);
}

void add_sums_of(std::span<const message> messages, const device_array& out,
                 const device_stream& stream) {
  values_reading values{messages, stream};
  std::vector<const void*> parts;
  for (std::size_t i = 0; i < messages.size(); ++i)
    parts.push_back(values.at(i, 0));
  stream.runtime().add_arrays(stream.run(), parts,
                              static_cast<std::int64_t>(out.size()), out.type(),
                              out.data());
}

/// Merges the messages into `out`, along the tree over their positions.
void merge_row(std::span<const message> messages, const device_array& out,
               const device_stream& stream) {
  if (messages[0].message.mode == round_mode::forward)
    merge_moments_of(messages, out, stream);
  else
    add_sums_of(messages, out, stream);
}

message half_of(std::span<const message> messages, const device_stream& stream);

/// Like `merge_row`, but along the tree over their identifiers.
void merge_tree(std::span<const message> messages, const device_array& out,
                const device_stream& stream) {
  if (is_row(messages))
    return merge_row(messages, out, stream);
  auto left = split_of(messages);
  merge_row(std::array{half_of(messages.first(left), stream),
                       half_of(messages.subspan(left), stream)},
            out, stream);
}

/// The message that stands for a subtree.
message half_of(std::span<const message> messages,
                const device_stream& stream) {
  auto result = messages[0];
  if (messages.size() == 1)
    return result;
  result.message.count = total_count(messages, 0);
  const auto& first = messages[0].message.values.array();
  device_array values{stream, first.type(), first.size()};
  merge_tree(messages, values, stream);
  values.publish();
  result.message.values = std::move(values);
  return result;
}

/// A copy of `x`, on the device of `stream`, to be updated.
device_array copy_of(const device_array& x, const device_stream& stream) {
  device_array result{stream, x.type(), x.size()};
  auto from = x.read_on(stream);
  stream.runtime().copy(stream.run(), result.data(), stream.where(),
                        from.data(), x.stream().where(), x.bytes());
  return result;
}

/// Writes mean and inv_std of a forward round's batch to `out` and what was
/// learned to `running`, if that has elements.
void finish_batch(const const_moments_view& batch, statistics_update& update,
                  const device_array& out, const device_array& running,
                  const device_stream& stream) {
  auto half = static_cast<std::size_t>(batch.channels);
  update.num_batches_tracked = batches_after(update, batch.count);
  stream.runtime().finalize_moments(
      stream.run(), batch,
      finalize_options_of(update, update.num_batches_tracked), out.data(),
      out.at(half), {running.data(), running.at(half)});
}

/// Like `finish_batch`, with the moments of all earlier batches, in `running`,
/// as one more part: what `merge_round` does in host memory.
void finish_online(const const_moments_view& batch, statistics_update& update,
                   const device_array& out, const device_array& running,
                   const device_stream& stream) {
  auto half = static_cast<std::size_t>(batch.channels);
  moments_view seen{update.num_elements_tracked,
                    running.data(),
                    running.at(half),
                    batch.channels,
                    running.type(),
                    stream.where()};
  if (batch.count != 0) {
    std::array<const_moments_view, 2> parts{seen, batch};
    stream.runtime().merge_moments(stream.run(), parts, seen);
    update.num_batches_tracked = batches_after(update, batch.count);
  }
  update.num_elements_tracked = seen.count;
  stream.runtime().finalize_moments(stream.run(), seen,
                                    {.eps = update.eps, .mode = update.mode},
                                    out.data(), out.at(half), {});
}

/// Finishes one batch after the other.
/// @param running the owner's statistics; updated, if it has elements.
batch_norm_reply finish_forward(std::int64_t owner, batch_norm_message total,
                                const device_array& running,
                                const device_stream& stream) {
  auto half = static_cast<std::size_t>(total.channels);
  auto moments = total.values.array().on_device_of(stream);
  auto in = moments.read_on(stream);
  device_array out{stream, moments.type(), moments.size()};
  auto finish = total.update.online ? finish_online : finish_batch;
  for (std::size_t i = 0; i < batches_of(total); ++i) {
    auto& count = count_of(total, i);
    require_counters(owner, total.update, count);
    auto first = 2 * half * i;
    finish({count, in.at(first), in.at(first + half), total.channels,
            out.type(), stream.where()},
           total.update, out.part(first, 2 * half), running, stream);
    if (total.update.online)
      count = total.update.num_elements_tracked;
  }
  out.publish();
  batch_norm_reply reply;
  reply.count = total.count;
  reply.values = std::move(out);
  reply.num_batches_tracked = total.update.num_batches_tracked;
  reply.later_counts = std::move(total.later_counts);
  return reply;
}

} // namespace

device_array merge_on_device(std::span<const message> messages,
                             const device_stream& on) {
  const auto& first = messages[0].message;
  const auto& stream = on ? on : first.values.array().stream();
  if (messages.size() == 1)
    return first.values.array();
  auto here = bring_to(stream, messages);
  auto size = 2 * static_cast<std::size_t>(first.channels);
  device_array out{stream, first.values.array().type(),
                   size * batches_of(first)};
  for (std::size_t i = 0; i < batches_of(first); ++i)
    merge_tree(batch_of(here, i), out.part(i * size, size), stream);
  out.publish();
  return out;
}

batch_norm_reply finish_on_device(std::int64_t owner,
                                  const batch_norm_message& total,
                                  const device_stream& on) {
  const auto& stream = on ? on : total.values.array().stream();
  if (total.mode == round_mode::backward) {
    batch_norm_reply reply;
    reply.count = total.count;
    reply.values = total.values;
    return reply;
  }
  device_array running;
  if (total.update.running.size() != 0)
    running = copy_of(total.update.running.array(), stream);
  auto reply = finish_forward(owner, total, running, stream);
  if (running.size() != 0) {
    running.publish();
    reply.running = std::move(running);
  }
  return reply;
}

} // namespace syncnorm::detail
