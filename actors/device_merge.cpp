#include "syncnorm/detail/device_merge.hpp"

#include "syncnorm/merge_tree.hpp"
#include "syncnorm/moments.hpp"

#include <array>
#include <bit>
#include <utility>
#include <vector>

namespace syncnorm::detail {

namespace {

using message = identified<batch_norm_message>;

/// The values of all messages on the device of `stream`, which reads them as
/// long as this is kept.
class gathered_values {
public:
  gathered_values(std::span<const message> messages,
                  const device_stream& stream) {
    for (const auto& x : messages)
      readings_.push_back(
          x.message.values.array().on_device_of(stream).read_on(stream));
  }

  [[nodiscard]] const void* at(std::size_t message, std::size_t i) const {
    return readings_[message].at(i);
  }

private:
  std::vector<device_reading> readings_;
};

void merge_into(device_array& out, std::span<const message> messages,
                const device_stream& stream) {
  gathered_values values{messages, stream};
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

void add_into(device_array& out, std::span<const message> messages,
              const device_stream& stream) {
  gathered_values values{messages, stream};
  std::vector<const void*> parts;
  for (std::size_t i = 0; i < messages.size(); ++i)
    parts.push_back(values.at(i, 0));
  stream.runtime().add_arrays(stream.run(), parts,
                              static_cast<std::int64_t>(out.size()), out.type(),
                              out.data());
}

/// A copy of `x`, on the device of `stream`, to be updated.
device_array copy_of(const device_array& x, const device_stream& stream) {
  device_array result{stream, x.type(), x.size()};
  auto from = x.read_on(stream);
  stream.runtime().copy(stream.run(), result.data(), stream.where(),
                        from.data(), x.stream().where(), x.bytes());
  return result;
}

/// The statistics of a forward round's batch in `out`, mean and inv_std, and in
/// `running`, if it has elements, what was learned.
void finish_batch(const batch_norm_message& total, device_array& out,
                  device_array& running, batch_norm_reply& reply,
                  const device_stream& stream) {
  auto half = static_cast<std::size_t>(total.channels);
  auto in = total.values.array().on_device_of(stream).read_on(stream);
  reply.count = total.count;
  stream.runtime().finalize_moments(
      stream.run(),
      {total.count, in.data(), in.at(half), total.channels, out.type(),
       stream.where()},
      finalize_options_of(total.update, reply.num_batches_tracked), out.data(),
      out.at(half), {running.data(), running.at(half)});
}

/// As `finish_batch`, with the moments of all batches before, in `running`, as
/// one part more: what `merge_round` does in host memory.
void finish_online(const batch_norm_message& total, device_array& out,
                   device_array& running, batch_norm_reply& reply,
                   const device_stream& stream) {
  auto half = static_cast<std::size_t>(total.channels);
  const auto& update = total.update;
  moments_view seen{update.num_elements_tracked,
                    running.data(),
                    running.at(half),
                    total.channels,
                    running.type(),
                    stream.where()};
  if (total.count != 0) {
    auto in = total.values.array().on_device_of(stream).read_on(stream);
    std::array<const_moments_view, 2> parts{
        seen, const_moments_view{total.count, in.data(), in.at(half),
                                 total.channels, out.type(), stream.where()}};
    stream.runtime().merge_moments(stream.run(), parts, seen);
  }
  reply.count = seen.count;
  stream.runtime().finalize_moments(stream.run(), seen,
                                    {.eps = update.eps, .mode = update.mode},
                                    out.data(), out.at(half), {});
}

/// The values of all messages in one array, along the tree over their
/// positions.
device_array merge_row(std::span<const message> messages,
                       const device_stream& stream) {
  const auto& first = messages[0].message;
  device_array out{stream, first.values.array().type(),
                   2 * static_cast<std::size_t>(first.channels)};
  if (first.mode == round_mode::forward)
    merge_into(out, messages, stream);
  else
    add_into(out, messages, stream);
  out.publish();
  return out;
}

/// What stands for a subtree.
message half_of(std::span<const message> messages,
                const device_stream& stream) {
  auto result = messages[0];
  result.message.count = 0;
  for (const auto& x : messages)
    result.message.count += x.message.count;
  result.message.values = merge_on_device(messages, stream);
  return result;
}

} // namespace

std::int64_t batches_after(const statistics_update& update,
                           std::int64_t count) {
  auto counts = count != 0 && update.running.size() != 0;
  return update.num_batches_tracked + (counts ? 1 : 0);
}

finalize_options finalize_options_of(const statistics_update& update,
                                     std::int64_t batches) {
  finalize_options result{
      .eps = update.eps, .mode = update.mode, .momentum = update.momentum};
  if (update.cumulative)
    result.momentum = batches == 0 ? 0.0 : 1.0 / double(batches);
  return result;
}

bool is_row(std::span<const message> messages) {
  auto n = std::int64_t(messages.size());
  auto first = messages.front().identifier;
  return messages.back().identifier - first == n - 1
         && first % std::int64_t(std::bit_ceil(std::uint64_t(n))) == 0;
}

device_array merge_on_device(std::span<const message> messages,
                             const device_stream& on) {
  const auto& first = messages[0].message;
  const auto& stream = on ? on : first.values.array().stream();
  if (messages.size() == 1)
    return first.values.array();
  if (!is_row(messages)) {
    auto left = split_of(messages);
    return merge_row(std::array{half_of(messages.first(left), stream),
                                half_of(messages.subspan(left), stream)},
                     stream);
  }
  return merge_row(messages, stream);
}

batch_norm_reply finish_on_device(const batch_norm_message& total,
                                  const device_stream& on) {
  const auto& stream = on ? on : total.values.array().stream();
  batch_norm_reply reply;
  if (total.mode == round_mode::backward) {
    reply.count = total.count;
    reply.values = total.values;
    return reply;
  }
  auto half = static_cast<std::size_t>(total.channels);
  device_array out{stream, total.values.array().type(), 2 * half};
  device_array running;
  if (total.update.running.size() != 0)
    running = copy_of(total.update.running.array(), stream);
  reply.num_batches_tracked = batches_after(total.update, total.count);
  auto finish = total.update.online ? finish_online : finish_batch;
  finish(total, out, running, reply, stream);
  if (running.size() != 0) {
    running.publish();
    reply.running = std::move(running);
  }
  out.publish();
  reply.values = std::move(out);
  return reply;
}

} // namespace syncnorm::detail
