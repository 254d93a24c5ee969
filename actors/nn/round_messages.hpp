#pragma once

// What a seat sends and gets, as messages of the core.

#include "actors/nn/participant.hpp"
#include "syncnorm/batch_norm_messages.hpp"
#include "syncnorm/detail/host_copy.hpp"

#include <utility>
#include <vector>

namespace syncnorm::nn::detail {

inline channel_payload to_payload(std::vector<double>&& in_host_memory,
                                  device_array&& on_device) {
  if (on_device.data() != nullptr)
    return std::move(on_device);
  return double_array{std::move(in_host_memory)};
}

inline batch_norm_message to_message(round_request&& x) {
  batch_norm_message result;
  result.mode = x.backward ? round_mode::backward : round_mode::forward;
  result.type = x.type;
  result.channels = x.channels;
  result.count = x.count;
  result.pass = x.pass;
  result.values = to_payload(std::move(x.values), std::move(x.device_values));
  result.update.eps = x.eps;
  result.update.mode = x.mode;
  result.update.momentum = x.momentum;
  result.update.cumulative = x.cumulative;
  result.update.running =
      to_payload(std::move(x.running), std::move(x.device_running));
  result.update.num_batches_tracked = x.num_batches_tracked;
  return result;
}

/// Brings replies to where the requests of a copy were.
class reply_reader {
public:
  round_reply read(const batch_norm_reply& x, const device_array& like) {
    round_reply result;
    result.count = x.count;
    result.pass = x.pass;
    result.num_batches_tracked = x.num_batches_tracked;
    if (like.data() != nullptr) {
      result.device_values = to_device(x.values, like);
      result.device_running = to_device(x.running, like);
    } else {
      result.values.assign(x.values.begin(), x.values.end());
      result.running.assign(x.running.begin(), x.running.end());
    }
    return result;
  }

private:
  device_array to_device(const channel_payload& x, const device_array& like) {
    if (x.on_device())
      return x.array().on_device_of(like.stream());
    if (x.size() == 0)
      return {};
    return uploads_.upload(like.stream(), like.type(), x.view());
  }

  syncnorm::detail::upload_memory uploads_;
};

} // namespace syncnorm::nn::detail
