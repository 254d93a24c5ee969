#pragma once

#include "syncnorm/batch_norm_master.hpp"
#include "syncnorm/replicable.hpp"
#include "syncnorm/sync_master.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

namespace syncnorm {

namespace detail {

class stream_watch;

} // namespace detail

/// One replica's part in the rounds of one batch-norm layer, for a thread: it
/// sends what this replica's kernels found and waits for what those of all
/// replicas found. The participant of copy 0 owns the master. The only
/// participant of a layer sends no message and computes the reply itself.
///
/// Only one thread may use it at a time. Every participant must take part in
/// the same rounds in the same order. After an error, none of a layer's
/// participants can be used any more: make new ones, copy 0's first.
///
/// Threads: waits for actors; use it from a detached actor or a thread of your
/// own, not from one of CAF's workers (it may wait forever).
class batch_norm_participant {
public:
  /// For copy 0: spawns the layer's master.
  /// @param options if the policy is left open, it is `fail_round`, whatever is
  ///                configured: a copy must see the same participants forward
  ///                and backward.
  /// @param copies how many participants there will be, this one included.
  /// @throws error `invalid_argument` for options that `sync_options::validate`
  ///         refuses, a bad configuration (`read_defaults`), less than one
  ///         copy, or `options.participants` of another number.
  batch_norm_participant(caf::actor_system& system, sync_options options,
                         std::int64_t copies);

  /// For a slave: registers with the master, here or on another node, and
  /// returns once registered.
  /// @param copy_id 1 or more.
  /// @param deadline how long to wait for a device of this participant; left
  ///                 open: as configured, see `sync_defaults`.
  /// @throws error as the master answers: `duplicate_identifier` if that copy
  ///         is registered already, `invalid_identifier`; `master_down`, also
  ///         for a master that has not answered after a minute;
  ///         `invalid_argument` for a null master or a bad configuration.
  batch_norm_participant(caf::actor_system& system,
                         const batch_norm_master_actor& master,
                         std::int64_t copy_id,
                         std::optional<caf::timespan> deadline = std::nullopt);

  /// What a replication callback does. For copy 0, it makes a master and, if
  /// there are more copies than the fan-in of `options`, relays, and publishes
  /// both in `context` as a `std::shared_ptr<batch_norm_relays>`. The master
  /// ends with the returned participant; the relays end when the last holder of
  /// that pointer lets go of it: the participant is one, `context` another. The
  /// other copies register with the master or their relay.
  /// @throws error as the constructors and as `callback_context`.
  static batch_norm_participant replicate(caf::actor_system& system,
                                          const sync_options& options,
                                          callback_context& context,
                                          std::int64_t copy_id);

  /// Takes over the part in the rounds; the other participant no longer has
  /// one. Unless it is the only copy, the other's `run`, `begin` and `end`
  /// throw `invalid_argument`, and its `give_up` does nothing.
  batch_norm_participant(batch_norm_participant&&) noexcept;
  /// As the constructor; leaves its former part.
  batch_norm_participant& operator=(batch_norm_participant&&) noexcept;
  ~batch_norm_participant();

  /// Sends `message` into the next round and waits for the reply, until the
  /// round's deadline. Values on a device stay there, and nobody waits for the
  /// device, as long as all participants' values are on devices of this
  /// process. Otherwise they are copied to the host from the first round on,
  /// and that round runs twice.
  /// @throws error with the master's code and text, which names layer, round
  ///         and the replicas at fault; the round has failed for all.
  ///         `deadline_exceeded` or `device_failure` if values that must go
  ///         through the host do not arrive from this participant's device; the
  ///         others get `participant_failed`.
  batch_norm_reply run(batch_norm_message message);

  /// The first half of `run`: sends the message, and waits only for a device
  /// whose values must go through the host. The merge of all messages may run
  /// in this call.
  /// @throws error `invalid_argument` if a reply is outstanding; as `run`.
  void begin(batch_norm_message message);

  /// The second half, which may run on another thread: waits for the reply, or
  /// for the error of sending the message.
  /// @throws error `invalid_argument` if no round was begun; as `run`.
  batch_norm_reply end();

  /// Tells the others that this replica cannot do its part of the next round,
  /// for example because its forward pass threw: they get `participant_failed`
  /// with this reason at once, and need not wait for the deadline.
  void give_up(std::string why);

  /// Which copy this is, from 0.
  [[nodiscard]] std::int64_t copy_id() const noexcept;

  /// How long this participant has spent in rounds, all together: sending,
  /// which may run the merge of a round, and waiting for replies. The slowest
  /// copy of a layer waits least.
  [[nodiscard]] std::chrono::nanoseconds waited() const noexcept;

  /// How many messages this participant has sent into rounds. Any thread may
  /// call this while nobody moves the participant. A message that is counted is
  /// in its receiver's mailbox.
  [[nodiscard]] std::uint64_t messages_sent() const noexcept;

  /// The master, for participants that are actors or on other nodes; null if
  /// there is one copy only.
  [[nodiscard]] const batch_norm_master_actor& master() const noexcept;

private:
  /// @throws error `invalid_argument` if it was moved from.
  void require_part() const;
  void send(batch_norm_message message);
  batch_norm_reply receive();
  [[nodiscard]] batch_norm_message to_host(batch_norm_message message);

  struct alone {};
  using owner =
      std::unique_ptr<sync_master<batch_norm_message, batch_norm_reply>>;
  using pipe = slave_pipe<batch_norm_message, batch_norm_reply>;

  caf::actor_system* system_;
  caf::timespan deadline_;
  std::int64_t copy_id_ = 0;
  /// Values go through host memory.
  bool host_only_ = false;
  /// Waits for copies to the host; made when it is needed.
  std::unique_ptr<detail::stream_watch> watch_;
  pinned_memory pinned_;
  /// Read and written by std::atomic_ref.
  mutable std::uint64_t messages_sent_ = 0;
  std::chrono::nanoseconds waited_{0};
  batch_norm_master_actor master_;
  /// Copy 0's relays. They are destroyed after the master, so that participants
  /// behind a relay are told that the master has ended, not that a replica has.
  std::shared_ptr<batch_norm_relays> relays_;
  std::variant<alone, owner, pipe> role_;
  /// What was sent last, as long as there is no reply.
  std::optional<batch_norm_message> outstanding_;
};

} // namespace syncnorm
