#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/batch_norm_replica.hpp"
#include "syncnorm/future_result.hpp"
#include "syncnorm/replicate.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace syncnorm {

/// Synchronized batch normalization for pipelines of actors: each copy is a
/// slave actor that answers forward and backward messages; see
/// `batch_norm_slave_actor`. It runs one pass at a time, in the order of the
/// requests, and never blocks a worker while it waits for the other copies: a
/// process may even have fewer workers than copies.
///
/// On a CUDA device, a request's tensor must be fully written when the message
/// arrives, and the answer's tensor is fully written when the answer is sent: a
/// message tells the slave that the stream's work has ended; meanwhile the
/// slave enqueues the passes that follow. A tensor in host memory is copied to
/// the device through reused pinned memory, and its answer is copied back.
///
/// All copies must be asked for the same passes in the same order. A copy may
/// also be a `batch_norm_layer`, driven by a thread: the master sees no
/// difference. As with a layer, after an error in a round, release all copies
/// and run the callbacks again. A refused request fails the round that it was
/// meant for. In evaluation, and if frozen, there is no round, so the other
/// copies are not affected. If online, there is no backward pass.
class batch_norm_stage final : public replicable {
public:
  /// @param system runs the actors; must outlive the stage.
  /// @throws error as `batch_norm_options::validate`; `device_failure`.
  batch_norm_stage(caf::actor_system& system, batch_norm_options options);

  /// A copy of state, options and training flag, to be replicated. On a CUDA
  /// device, the copy has a stream of its own, and the calling thread waits for
  /// the device, without a deadline.
  /// @throws error `invalid_argument` while the slave actor holds the state;
  ///         `device_failure`.
  [[nodiscard]] batch_norm_stage clone() const;

  /// The same on another device.
  /// @throws error as `clone`; `device_unavailable` or `device_failure`.
  [[nodiscard]] batch_norm_stage clone_to(const device& where) const;

  /// Takes over state and slave actor; after that, the other stage may only be
  /// destroyed.
  batch_norm_stage(batch_norm_stage&&) = default;
  batch_norm_stage& operator=(batch_norm_stage&&) = delete;

  /// Releases the stage, and waits as `on_data_parallel_release`.
  ~batch_norm_stage() override;

  /// For `execute_replication_callbacks`: the options in which all copies must
  /// agree, such as `"BatchNorm(64, float32)"`, or, if some are not the
  /// default, `"BatchNorm(64, float32, eps=0.001, momentum=none)"`.
  [[nodiscard]] std::string kind() const;

  /// State, options and training flag, while no slave actor holds them.
  /// @throws error `invalid_argument` between replication and release; ask the
  ///         slave then.
  [[nodiscard]] batch_norm_replica& replica();
  /// The same, to be read.
  /// @throws error as the other one.
  [[nodiscard]] const batch_norm_replica& replica() const;

  /// The slave actor.
  /// @throws error `unregistered` before the replication callback has run.
  [[nodiscard]] const batch_norm_slave_actor& slave() const;

  /// Copy 0 spawns the master and publishes it; each copy spawns its slave
  /// actor and returns when that actor has registered.
  /// @throws error `duplicate_identifier` if this copy's callback has run
  ///         before and the copy was not released; `invalid_argument` for a bad
  ///         configuration; the error with which the master answers the
  ///         registration, or `master_down` if it has not answered after a
  ///         minute.
  /// Threads: waits for actors; call it from a detached actor or a thread of
  ///          your own, not from one of CAF's workers (it may wait forever). A
  ///          detached actor is destroyed by the thread that releases its last
  ///          handle: end the actor before that.
  void on_data_parallel_replicate(callback_context& context,
                                  std::int64_t copy_id) override;

  /// Ends the slave actor and waits until it has given the state back. Passes
  /// that it has not finished are answered with `participant_down`, with
  /// `master_down` if copy 0, and the master with it, was released before, or
  /// with CAF's `request_receiver_down` if the slave has not even read the
  /// request. The statistics and gradients that it gives back include the
  /// passes that it answered, and no others.
  /// Threads: as `on_data_parallel_replicate`; there is no deadline.
  void on_data_parallel_release() override;

  /// Makes the slave give up the next round.
  void on_data_parallel_failure(const std::string& why) override;

private:
  caf::actor_system* system_;
  std::shared_ptr<batch_norm_replica> replica_;
  batch_norm_slave_actor slave_;
  /// Told when the slave actor has ended.
  std::shared_ptr<future_result<bool>> ended_;
};

} // namespace syncnorm
