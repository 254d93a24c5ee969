#pragma once

#include "syncnorm/batch_norm_participant.hpp"
#include "syncnorm/batch_norm_replica.hpp"
#include "syncnorm/detail/one_user.hpp"
#include "syncnorm/replicate.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace syncnorm {

/// Synchronized batch normalization for threads: plain calls that wait for the
/// other copies where they must. Tensors of any rank from 2 on are seen as
/// `[N, C, S]` of a `tensor_layout`; see `make_layout`.
///
/// A new layer stands alone and is plain batch normalization. Before a copy
/// made by `clone` can train, `execute_replication_callbacks` must tell it
/// whose copy it is; the same holds for a layer that was released. All copies
/// then make the same calls in the same order, each from a thread of its own.
/// Evaluation, and training as the only copy, send no message.
///
/// On a CUDA device, the passes are enqueued on the options' stream, and nobody
/// waits for the device as long as all copies are on CUDA devices of one
/// process. Copies on CPUs, CUDA devices and other nodes may be mixed; then a
/// CUDA copy's statistics are copied to the host and back.
///
/// Only one thread may use a layer at a time; a pass that begins during another
/// thread's pass is refused. After an error in a round, release all copies and
/// run the callbacks again. A failed pass has changed nothing.
///
/// Threads: waits for actors; use it from a detached actor or a thread of your
/// own, not from one of CAF's workers (it may wait forever).
class batch_norm_layer final : public replicable {
public:
  /// @param system runs the layer's actors; must outlive the layer.
  /// @throws error as `batch_norm_options::validate`; `device_failure`.
  batch_norm_layer(caf::actor_system& system, batch_norm_options options);

  /// A copy of state, options and training flag, to be replicated. On a CUDA
  /// device, the calling thread waits for the device, without a deadline.
  /// @throws error `device_failure`.
  [[nodiscard]] batch_norm_layer clone() const;

  /// The same on another device, where its tensors must then lie.
  /// @param stream a stream of that device; none: its default stream.
  /// @throws error `device_unavailable`, `device_mismatch` or `device_failure`.
  [[nodiscard]] batch_norm_layer clone_to(const device& where,
                                          device_stream stream = {}) const;

  /// Takes over the state and the place in the rounds; after that, the other
  /// layer may only be destroyed.
  batch_norm_layer(batch_norm_layer&&) = default;
  /// As the constructor; self-assignment changes nothing.
  batch_norm_layer& operator=(batch_norm_layer&& other) noexcept;

  /// For `execute_replication_callbacks`: the options in which all copies must
  /// agree, such as `"BatchNorm(64, float32)"`, or, if some are not the
  /// default, `"BatchNorm(64, float32, eps=0.001, momentum=none)"`.
  [[nodiscard]] std::string kind() const;

  /// The state, the options, the training flag.
  [[nodiscard]] batch_norm_replica& replica() noexcept {
    return replica_;
  }
  /// The state, the options, the training flag, to be read.
  [[nodiscard]] const batch_norm_replica& replica() const noexcept {
    return replica_;
  }

  // -- replication ------------------------------------------------------------

  /// Copy 0 spawns the layer's master and publishes it; the other copies spawn
  /// their slave and register it.
  /// @throws error `duplicate_identifier` if this copy's callback has run
  ///         before and the copy was not released; also as
  ///         `batch_norm_participant`.
  void on_data_parallel_replicate(callback_context& context,
                                  std::int64_t copy_id) override;

  /// Leaves the master; copy 0 ends it.
  /// @throws error `invalid_argument`, and does nothing, if a thread is in a
  ///         pass of this copy.
  void on_data_parallel_release() override;

  /// As `batch_norm_participant::give_up`. Safe to call after the round has
  /// failed.
  void on_data_parallel_failure(const std::string& why) override;

  // -- passes -----------------------------------------------------------------

  /// Sets y.
  /// @param x, y  `[N, C, S]` with the options' channels and dtype, in one
  ///              layout; y may be x, as `normalize` says, but backward needs
  ///              x. N or S may be 0. On a CUDA device, both must stay valid
  ///              until the stream has completed the pass.
  /// @returns what `backward` needs to know.
  /// @throws error `shape_mismatch`, `dtype_mismatch`, `device_mismatch`,
  ///         `invalid_argument` for the arguments; nothing is written, and the
  ///         other copies get `participant_failed`.
  /// @throws error `invalid_argument` if another thread is in a pass of this
  ///         copy; that pass goes on.
  /// @throws error `device_failure`, and `deadline_exceeded` if a device does
  ///         not finish in time; the other copies get `participant_failed`.
  /// @throws error `malformed_message` in training, if a counter of copy 0's
  ///         state is negative, or if another batch or its elements would
  ///         take it past 2^63 - 1.
  /// @throws error `unregistered` in training, if this copy was not told whose
  ///         copy it is.
  /// @throws error as `batch_norm_participant::run` if another copy is at
  ///         fault.
  batch_norm_tape forward(const const_tensor_view& x, const tensor_view& y);

  /// Sets dx and adds to the gradients of weight and bias.
  /// @param dy, x, dx  as in forward, of one shape and format; dx may be dy
  ///                   or x, as `backward_input` says.
  /// @param tape  from this layer's forward pass of x; a tape with statistics
  ///              of another dtype, size or device is `invalid_argument`.
  /// @throws error as `forward`.
  void backward(const const_tensor_view& dy, const const_tensor_view& x,
                const batch_norm_tape& tape, const tensor_view& dx);

  // -- what it cost -----------------------------------------------------------

  /// Messages sent into rounds since the last replication.
  [[nodiscard]] std::uint64_t messages_sent() const noexcept;

  /// Time spent in rounds since the last replication: sending, which may run
  /// the merge of a round, and waiting for the other copies.
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept;

private:
  /// Returns the participant for a pass that exchanges; null if the layer
  /// stands alone.
  batch_norm_participant* require_participant(const char* call);

  /// Whether the other copies wait for this one in a backward pass.
  [[nodiscard]] bool joins_round(const batch_norm_tape& tape) const;

  batch_norm_tape run_forward(const const_tensor_view& x, const tensor_view& y);
  void run_backward(const const_tensor_view& dy, const const_tensor_view& x,
                    const batch_norm_tape& tape, const tensor_view& dx);

  /// Runs `pass`, unless another thread is in a pass.
  template <class F>
  auto alone(const char* call, F pass);

  /// Runs `prepare`; if it throws, the other copies are told before the caller.
  template <class F>
  auto prepare_or_give_up(batch_norm_participant& with, F prepare);

  /// Runs `pass`; if it throws, the layer forgets what the pass has learned.
  template <class F>
  auto learn(F pass);

  /// Runs a round; its error names the layer.
  batch_norm_reply run_round(batch_norm_participant& with,
                             batch_norm_message message);

  caf::actor_system* system_;
  batch_norm_replica replica_;
  /// False for a copy that has not yet been told whose copy it is.
  bool may_stand_alone_ = true;
  detail::one_user users_;
  std::optional<batch_norm_participant> participant_;
};

} // namespace syncnorm
