#pragma once

#include "syncnorm/device_array.hpp"
#include "syncnorm/moments.hpp"
#include "syncnorm/tensor_view.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::nn::detail {

class joint_rounds;

/// What one copy of a layer sends into a round; the core's `batch_norm_message`
/// without CAF. Values are per channel, 2 * C of them: float64 in host memory,
/// whatever the tensor's dtype; or, for a copy on a device, an array there of
/// the statistics' own type.
struct round_request {
  bool backward = false;
  /// Of the copy's input.
  dtype type = dtype::float32;
  std::int64_t channels = 0;
  /// Elements of each channel: N * S.
  std::int64_t count = 0;
  /// Backward: that of the forward reply.
  std::uint64_t pass = 0;
  /// Forward: means, then M2. Backward: sum_dy, then sum_dy_xmu.
  std::vector<double> values;
  /// The same on a device; then `values` is empty.
  device_array device_values;

  /// Forward: whether the copy records a graph, through which it would take
  /// part in a backward round. Stays in this process.
  bool has_graph = false;

  // Forward only: options, which must be the same for all copies.
  double eps = 1e-5;
  eps_mode mode = eps_mode::plus;
  double momentum = 0.1;
  bool cumulative = false;

  // Forward only; those of copy 0 are used.
  /// Running mean, then running variance; empty: not tracked.
  std::vector<double> running;
  /// The same on a device.
  device_array device_running;
  std::int64_t num_batches_tracked = 0;
};

/// What every copy gets back, on the device of its request if that was on one.
struct round_reply {
  /// Elements of each channel over all copies.
  std::int64_t count = 0;
  /// Forward: which of the master's passes this is; the same for all copies,
  /// whenever each of them joined.
  std::uint64_t pass = 0;
  /// Forward: mean, then inv_std. Backward: the sums over all copies.
  std::vector<double> values;
  device_array device_values;
  /// Forward: the running statistics with this batch, if they are tracked.
  std::vector<double> running;
  device_array device_running;
  std::int64_t num_batches_tracked = 0;
};

/// One copy's seat among the copies of a layer. One thread uses it at a time.
class participant {
public:
  virtual ~participant() = default;

  /// The layer's kind and path, for the texts of its own errors.
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;

  /// Sends into the next round and waits for the other copies, until the
  /// round's deadline.
  /// @throws error that names layer, round and the copies at fault.
  round_reply run(round_request request) {
    begin(std::move(request));
    return end();
  }

  /// Refuses a forward call in which no other copy takes part, before anything
  /// is done for it.
  /// @throws error `wrong_round` outside of the forward pass that all copies of
  ///         a data-parallel object run together.
  virtual void require_pass() const {}

  /// The first half of `run`: sends, and waits for no other copy.
  /// @throws error also if a reply is outstanding, which may be on its way to
  ///         another thread.
  virtual void begin(round_request request) = 0;

  /// The second half, possibly on another thread: waits for the reply.
  virtual round_reply end() = 0;

  /// Tells the others that this copy no longer takes part, and why: a round
  /// that waits for it fails with `participant_failed`.
  virtual void give_up(const std::string& why) noexcept = 0;

  /// The layer's call throws: like `give_up`, unless the runner of the copy's
  /// forward pass sees the exception and then tells the others.
  virtual void layer_failed(const std::string& why) noexcept {
    give_up(why);
  }

  /// Ends the copy's part among the actors, from any thread. Graphs that still
  /// hold this seat no longer keep the actor system, and a thread that waits in
  /// here lets go when it has its reply, or the error that others left.
  /// Afterwards, rounds are refused as `stale`, unless this is the only copy.
  virtual void leave() noexcept = 0;

  /// 0 for the copy whose options and running statistics count.
  [[nodiscard]] virtual std::int64_t copy_id() const noexcept = 0;

  /// How many messages this copy has sent into rounds. Where some copies are on
  /// devices and others are not, the first round takes two from each.
  [[nodiscard]] virtual std::uint64_t messages_sent() const noexcept = 0;

  /// How many rounds this copy has taken part in.
  [[nodiscard]] virtual std::uint64_t rounds() const noexcept = 0;

  /// If any two of the copies that share statistics, all in this process, were
  /// on one CUDA device in the last forward round: the text that names the two.
  [[nodiscard]] virtual std::optional<std::string> shared_device() const {
    return std::nullopt;
  }

  /// A copy that recorded no graph in the last forward round, so that no
  /// backward pass of that round can have all copies; -1 if there is none.
  /// Nothing is known about copies in other processes.
  [[nodiscard]] virtual std::int64_t copy_without_graph() const {
    return -1;
  }

  /// Where the copies of a data-parallel graph join their backward pass; null
  /// for a copy with a graph and a thread of its own.
  [[nodiscard]] virtual joint_rounds* joint() const noexcept {
    return nullptr;
  }

  /// A flag that is set when the current forward pass of all copies is over;
  /// null where that is unknown.
  [[nodiscard]] virtual std::shared_ptr<const std::atomic<bool>>
  pass_is_over() const {
    return nullptr;
  }
};

using participant_ptr = std::shared_ptr<participant>;

/// What a layer without other copies answers itself: no message is sent.
[[nodiscard]] round_reply merge_alone(round_request request);

} // namespace syncnorm::nn::detail
