#pragma once

#include "syncnorm/device.hpp"
#include "syncnorm/device_array.hpp"
#include "syncnorm/moments.hpp"
#include "syncnorm/sync_options.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace syncnorm {

/// What a batch-norm layer is, for its whole life. Its copies must agree in
/// everything except `name`, `where`, `stream`, `deadline` and `fan_in`, or
/// `execute_replication_callbacks` refuses them. Copy 0's `deadline` and
/// `fan_in` hold for the rounds.
///
/// A batch with one value per channel over all copies is normalized to the
/// bias, and leaves the running variance unchanged; libtorch's modules
/// (`nn::SynchronizedBatchNorm2d`, ...) refuse it, as PyTorch does.
struct batch_norm_options {
  /// Names the layer in error texts.
  std::string name = "batch_norm";
  /// C, the size of the tensors' second dimension.
  std::int64_t channels = 0;
  /// The tensors' type. Parameters and statistics have `statistics_type(type)`.
  dtype type = dtype::float32;
  /// Keeps the inverse standard deviation finite: 0 or more. With 0 it is
  /// infinite for a channel whose values are all the same, and y is NaN.
  double eps = 1e-5;
  /// How epsilon is used.
  eps_mode mode = eps_mode::plus;
  /// The weight of a batch in the running statistics. Without a value, they are
  /// the average over all batches.
  std::optional<double> momentum = 0.1;
  /// Whether the layer has weight and bias.
  bool affine = true;
  /// Whether the layer has running statistics. If not, evaluation uses the
  /// statistics of this replica's batch, as PyTorch does.
  bool track_running_stats = true;
  /// Online standardization of a stream: in training, a batch is normalized
  /// with the statistics of all elements seen so far, its own included, merged
  /// in float64 without loss. These statistics replace the running averages,
  /// and evaluation uses them; `momentum` does not matter. The backward pass of
  /// a layer treats them as constants; a stage has no backward pass.
  bool online = false;
  /// Statistics and parameters are constants: passes always run as in
  /// evaluation, nothing is updated, and weight and bias have no gradients.
  bool frozen = false;
  /// Where the tensors lie and the layer runs.
  device where{};
  /// On a CUDA device: the stream that the passes are enqueued on. None: the
  /// device's default stream, or for a `batch_norm_stage` a stream of its own.
  device_stream stream{};
  /// How long a round may take from its first message to its last. Left open:
  /// as `sync_options::deadline`.
  std::optional<caf::timespan> deadline = std::nullopt;
  /// The approximate maximum of messages that one actor receives per round:
  /// more copies of one process stand behind a tree of relays, with the same
  /// bits. A master may receive one more, its owner's. Left open: as
  /// `sync_options::fan_in`; if copy 0 is on a CUDA device, its master receives
  /// all messages, to merge them there at once.
  std::optional<std::int64_t> fan_in = std::nullopt;

  /// @throws error `invalid_argument` for an empty name, less than one channel
  ///         or more than `max_channels`, a type or mode that does not exist,
  ///         eps that is negative or not finite, momentum outside [0, 1], a
  ///         deadline of zero or less or above `max_deadline`, a fan-in below
  ///         2, or `frozen` or `online` without running statistics;
  ///         `device_unavailable` if `where` does not exist here;
  ///         `device_mismatch` if `stream` is of another device.
  void validate() const;
};

/// Returns the options of the layer's master.
[[nodiscard]] sync_options make_sync_options(const batch_norm_options& options);

} // namespace syncnorm
