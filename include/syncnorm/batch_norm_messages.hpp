#pragma once

#include "syncnorm/channel_payload.hpp"
#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/detail/message_fields.hpp"
#include "syncnorm/moments.hpp"
#include "syncnorm/tensor_view.hpp"

#include <cstdint>
#include <string>
#include <vector>

// What a batch-norm master and its participants say to each other. Statistics
// travel as float64 whatever the tensors' type: a merge then loses nothing that
// the replicas had, one kind of array serves all types, and a float32 value is
// the same value as a float64. For tensors of other types than float64, values
// are rounded once, when a replica turns the reply into parameters of its
// kernels.
//
// If all replicas are in one process and on CUDA devices, they send arrays on
// their devices instead, of the statistics' own type or, online, of float64;
// the master merges them on the owner's device, and the reply lies there.
// Nobody waits for a device.

namespace syncnorm {

/// Which of a layer's two passes a round belongs to.
enum class round_mode : std::uint8_t { forward = 0, backward = 1 };

/// Returns `"forward"` or `"backward"`.
[[nodiscard]] std::string to_string(round_mode mode);

/// What the master does in a forward round besides merging. Epsilon, mode,
/// momentum, `cumulative` and `online` must be the same for all; of the rest,
/// only the owner's (copy 0's) values count.
struct statistics_update {
  /// As `batch_norm_options::eps`.
  detail::exact<double> eps = 1e-5;
  /// How epsilon is used.
  detail::enum_code<eps_mode> mode = eps_mode::plus;
  /// The weight of this batch in the running statistics; ignored for a
  /// cumulative average.
  detail::exact<double> momentum = 0.1;
  /// Average over all batches: momentum is 1 / (batches, this one included).
  bool cumulative = false;
  /// Normalize with the statistics of all elements seen so far.
  bool online = false;
  /// Running mean, then unbiased running variance, before this round: 2 * C
  /// elements, or none if they are not tracked. Online: mean, then M2, of all
  /// elements seen before.
  channel_payload running;
  /// Batches tracked before this round.
  std::int64_t num_batches_tracked = 0;
  /// Online: elements of each channel seen before this round.
  std::int64_t num_elements_tracked = 0;
};

/// For CAF's serializers.
template <class Inspector>
auto inspect(Inspector& f, statistics_update& x) {
  return detail::inspect_object(
      f, x, "syncnorm::statistics_update", detail::field("eps", x.eps),
      detail::field("mode", x.mode), detail::field("momentum", x.momentum),
      detail::field("cumulative", x.cumulative),
      detail::field("online", x.online), detail::field("running", x.running),
      detail::field("num_batches_tracked", x.num_batches_tracked),
      detail::field("num_elements_tracked", x.num_elements_tracked));
}

/// What a replica sends into a round. Mode, type, channels, pass and the
/// options in `update` must be the same for all.
struct batch_norm_message {
  /// Which pass this is.
  detail::enum_code<round_mode> mode = round_mode::forward;
  /// The type of the tensors.
  detail::enum_code<dtype> type = dtype::float32;
  /// C.
  std::int64_t channels = 0;
  /// Elements of each channel on this replica, N * S; may be 0.
  std::int64_t count = 0;
  /// Backward: which forward pass this belongs to, by `batch_norm_reply::pass`
  /// or a number that the replicas count themselves; 0: unknown.
  std::uint64_t pass = 0;
  /// 2 * C elements. Forward: means, then M2. Backward: sum(dy), then
  /// sum(dy * (x - mean)), which is 0 for a channel whose variance
  /// `eps_mode::clamp` has clamped. May be empty if `count` is 0. If batches
  /// share the message: the values of all, one after the other.
  channel_payload values;
  /// Forward: the options of the layer, and copy 0's statistics.
  statistics_update update;
  /// True if this message stands for several, some with values on devices and
  /// others in host memory, or on devices of another node: nothing was merged.
  bool resend = false;
  /// Forward: `count` of each batch after the first; each batch gets statistics
  /// of its own. All replicas have equally many.
  std::vector<std::int64_t> later_counts;
};

/// For CAF's serializers.
template <class Inspector>
auto inspect(Inspector& f, batch_norm_message& x) {
  detail::travelling_resend resend{x};
  return detail::inspect_object(
      f, x, "syncnorm::batch_norm_message", detail::field("mode", x.mode),
      detail::field("type", x.type), detail::field("channels", x.channels),
      detail::field("count", x.count), detail::field("pass", x.pass),
      detail::field("values", x.values), detail::field("update", x.update),
      detail::field("resend", resend.value),
      detail::field("later_counts", x.later_counts));
}

/// What every replica gets back: the same for all.
struct batch_norm_reply {
  /// Elements of each channel over all replicas; online, of all batches so far.
  std::int64_t count = 0;
  /// 2 * C elements. Forward: mean, then inv_std, of the whole batch, or of all
  /// elements so far. Backward: sum(dy), then sum(dy * (x - mean)), over the
  /// whole batch. If batches share the reply: the values of all.
  channel_payload values;
  /// Forward: the running statistics with this batch, as in
  /// `statistics_update`. A replica that keeps its own takes them over.
  channel_payload running;
  /// Forward: batches tracked, with this one.
  std::int64_t num_batches_tracked = 0;
  /// Some of the messages were on devices and others in host memory: nothing
  /// was merged, and every replica must send its message again, and all later
  /// ones, in host memory.
  bool resend = false;
  /// `count` of each batch after the first. The running statistics are those
  /// after the last batch.
  std::vector<std::int64_t> later_counts;
  /// Forward: the master's number of this pass, counted from 1, for
  /// `batch_norm_message::pass` of the backward pass; batches after the first
  /// have the numbers that follow. 0: the master gives none.
  std::uint64_t pass = 0;
};

/// For CAF's serializers.
template <class Inspector>
auto inspect(Inspector& f, batch_norm_reply& x) {
  return detail::inspect_object(
      f, x, "syncnorm::batch_norm_reply", detail::field("count", x.count),
      detail::field("values", x.values), detail::field("running", x.running),
      detail::field("num_batches_tracked", x.num_batches_tracked),
      detail::field("resend", x.resend),
      detail::field("later_counts", x.later_counts),
      detail::field("pass", x.pass));
}

} // namespace syncnorm
