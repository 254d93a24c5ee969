#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/config.hpp"
#include "syncnorm/detail/caf/logger_guard.hpp"
#include "syncnorm/detail/is_distant.hpp"
#include "syncnorm/detail/request_master.hpp"
#include "syncnorm/detail/sync_master_impl.hpp"
#include "syncnorm/slave_pipe.hpp"
#include "syncnorm/sync_callback.hpp"
#include "syncnorm/sync_options.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace syncnorm {

/// Spawns a master actor around `callback`. Options that are left open are
/// taken from the system's configuration. The master lives until its last
/// handle is gone or it is told to exit. Once another node knows it, it lives
/// until it is told to exit, and its actor system waits for that.
/// @throws error `invalid_argument` for an empty callback or options that
///         `resolve` refuses.
template <class In, class Out>
[[nodiscard]] sync_master_actor<In, Out>
spawn_sync_master(caf::actor_system& system, sync_options options,
                  sync_callback<In, Out> callback) {
  using impl = detail::sync_master_impl<In, Out>;
  options = resolve(std::move(options), system.config());
  if (!callback)
    throw error{errc::invalid_argument, "spawn_sync_master of layer "
                                            + options.layer
                                            + ": the callback is empty"};
  detail::logger_guard guard;
  return system.spawn<impl>(std::move(options), std::move(callback));
}

/// Spawns a master actor whose replicas may stand behind relays; see
/// `spawn_sync_relay`.
/// @throws error as above; also for an empty function in `reduction`, and for
///         `reduction.participants` below 0 or different from the number in
///         `options`, if both have one.
template <class In, class Out>
[[nodiscard]] sync_master_actor<In, Out>
spawn_sync_master(caf::actor_system& system, sync_options options,
                  sync_reduction<In, Out> reduction) {
  using impl = detail::sync_master_impl<In, Out>;
  options = resolve(std::move(options), system.config());
  if (!reduction.merge || !reduction.finish)
    throw error{errc::invalid_argument, "spawn_sync_master of layer "
                                            + options.layer
                                            + ": a function is empty"};
  detail::check_participants(options, reduction.participants);
  detail::logger_guard guard;
  return system.spawn<impl>(std::move(options), std::move(reduction));
}

/// Registers the actor `self`, a pointer or a `caf::scoped_actor`, as a slave
/// of `master`: `.then` gets a `slave_ticket`, from which to make a
/// `slave_pipe`.
/// @param timeout how long a master on another node may take; after that, the
///                error is CAF's `request_timeout`. If the master has exited or
///                its node is lost, the error is `master_down`, or CAF's
///                `request_receiver_down` if this node has not yet heard of the
///                master's end.
template <class Self, class Master>
auto register_slave(Self&& self, const Master& master, std::int64_t identifier,
                    caf::timespan timeout = detail::registration_time) {
  return detail::request_master(self, timeout, master, identifier,
                                register_slave_atom_v, identifier);
}

namespace detail {

/// How long an owner waits for a master on another node: a second longer than
/// the deadline that the configuration of the owner's node sets.
template <class Master>
caf::timespan owner_timeout(const Master& master) {
  if (!is_distant(master))
    return {};
  auto here = resolve(sync_options{}, master.home_system().config());
  return here.deadline.value() + std::chrono::seconds{1};
}

} // namespace detail

/// Sends the owner's message of the next round from the actor `self`: `.then`
/// gets the reply for identifier 0. The same actor must lead all rounds and
/// stay alive: if it ends, even between two rounds, so does the generation. The
/// message names no round: if a round has failed, and a slave has registered
/// again since, the message belongs to the new generation, and `self` is not
/// told of the failure.
/// @param timeout as for `register_slave`. If left out, a second more than the
///                deadline in this node's configuration; a master with a longer
///                deadline needs a longer timeout.
template <class Self, class Master, class In>
auto run_master(Self&& self, const Master& master, In message,
                std::optional<caf::timespan> timeout = std::nullopt) {
  return detail::request_master(
      self, timeout ? *timeout : detail::owner_timeout(master), master, 0,
      run_master_atom_v, std::move(message));
}

/// Asks `master` what it has counted: `.then` gets `sync_metrics`.
/// @param timeout as for `register_slave`.
template <class Self, class Master>
auto read_metrics(Self&& self, const Master& master,
                  caf::timespan timeout = detail::registration_time) {
  return detail::request_master(self, timeout, master, detail::no_replica,
                                get_metrics_atom_v);
}

/// A master for threads: spawns the actor, leads its rounds, and ends the actor
/// when destroyed. Participants that are actors use `handle`.
///
/// Threads: waits for actors; use it from a detached actor or a thread of your
/// own, not from one of CAF's workers (it may wait forever). Several threads
/// may call `register_slave`, `nr_slaves` and `handle` at the same time; the
/// other functions are for one thread at a time.
template <class In, class Out>
class sync_master {
public:
  /// The master's handle.
  using handle_type = sync_master_actor<In, Out>;
  /// The pipe that its slaves have.
  using pipe_type = slave_pipe<In, Out>;

  /// @param system must outlive this object and its pipes, or the system's
  ///               destructor waits forever.
  /// @param callback a `sync_callback` or a `sync_reduction`.
  /// @throws error as `spawn_sync_master`.
  template <class Callback>
  sync_master(caf::actor_system& system, sync_options options,
              Callback callback)
      : system_{&system},
        layer_{options.layer},
        deadline_{resolve(options, system.config()).deadline.value()},
        handle_{spawn_sync_master<In, Out>(system, std::move(options),
                                           std::move(callback))},
        agent_{detail::spawn_pipe_agent<In, Out>(system, handle_, link_)} {}

  sync_master(const sync_master&) = delete;
  sync_master& operator=(const sync_master&) = delete;

  ~sync_master() {
    caf::anon_send_exit(handle_, caf::exit_reason::user_shutdown);
  }

  /// The master actor.
  [[nodiscard]] const handle_type& handle() const noexcept {
    return handle_;
  }

  /// Registers a slave that is a thread. After a round has run or failed, the
  /// first registration begins a new generation: all slaves must register
  /// again, and pipes of the old generation get `stale`. A registration with an
  /// invalid identifier is refused and begins no generation.
  /// @param identifier 1 or more, each once per generation.
  /// @returns as `register_slave_thread`.
  [[nodiscard]] caf::expected<pipe_type>
  register_slave(std::int64_t identifier) {
    return register_slave_thread<In, Out>(*system_, handle_, identifier);
  }

  /// Sends the owner's message of the next round and waits for the reply. After
  /// a failed round, the message belongs to the new generation if a slave has
  /// already registered again; otherwise the result is the round's error, once.
  /// @param timeout as for `slave_pipe::run_slave`. After that, the owner has
  ///                left the round, as by `give_up`; it takes part again from
  ///                the next generation on.
  /// @returns the reply, the round's error, or `invalid_argument` as
  ///          `send_master`.
  [[nodiscard]] caf::expected<Out>
  run_master(In message, std::optional<caf::timespan> timeout = std::nullopt) {
    if (auto refusal = send_master(std::move(message)))
      return refusal;
    return await_reply(timeout);
  }

  /// The first half of `run_master`: sends the message. It waits for nobody,
  /// but the callback may run in this call; see `sync_callback`.
  /// @returns no error, or `invalid_argument`, with nothing sent, if
  ///          `await_reply` has not yet taken the reply to the last message.
  [[nodiscard]] caf::error send_master(In message) {
    if (link_->is_outstanding())
      return make_error(errc::invalid_argument,
                        "sync_master: layer " + layer_
                            + ": the reply to the owner's last message has not "
                              "been taken");
    link_->expect();
    detail::send_and_lend(*system_, handle_, run_master_atom_v,
                          std::move(message),
                          detail::make_reply_slot(link_->result, 0));
    return {};
  }

  /// The second half, which may run on another thread: waits for the reply.
  /// @param timeout as for `run_master`.
  /// @returns the reply, the round's error, or `invalid_argument` if there is
  ///          no reply to wait for.
  [[nodiscard]] caf::expected<Out>
  await_reply(std::optional<caf::timespan> timeout = std::nullopt) {
    if (!link_->is_outstanding())
      return make_error(errc::invalid_argument,
                        "sync_master: await_reply waits for the reply to what "
                        "send_master has sent, and there is none outstanding");
    auto result = link_->wait(
        agent_.actor(), timeout.value_or(deadline_ + std::chrono::seconds{1}),
        [this] { return "layer " + layer_ + ": the owner: "; });
    if (link_->why_left())
      leave();
    return result;
  }

  /// Tells the slaves that the owner cannot do its part of the next round: the
  /// round fails with `participant_failed` and that reason for all of them. So
  /// does a round that is not complete yet, as with `slave_pipe::give_up`.
  void give_up(std::string why) {
    detail::anon_send(handle_, give_up_atom_v, round_tag{}, std::move(why),
                      detail::reply_slot{link_});
  }

  /// Number of slaves that are registered for the next round (a relay counts as
  /// all replicas that it stands for). It is 0 after a failed round, until the
  /// first slave or relay registers again, and if the master is down, which
  /// `read_metrics` reports as an error. This call waits without a deadline, as
  /// long as a callback runs.
  [[nodiscard]] std::uint64_t nr_slaves() const {
    std::uint64_t result = 0;
    detail::logger_guard guard;
    caf::scoped_actor self{*system_};
    detail::request(self, handle_, nr_slaves_atom_v)
        .receive([&](std::uint64_t n) { result = n; },
                 [](const caf::error&) {});
    return result;
  }

private:
  /// The reply may still come, but must not reach the rounds that follow.
  void leave() {
    give_up("it waited past its own deadline");
    link_ = std::make_shared<detail::thread_link<Out>>();
    agent_.replace(detail::spawn_pipe_agent<In, Out>(*system_, handle_, link_));
  }

  caf::actor_system* system_;
  std::string layer_;
  caf::timespan deadline_;
  handle_type handle_;
  std::shared_ptr<detail::thread_link<Out>> link_ =
      std::make_shared<detail::thread_link<Out>>();
  detail::agent_guard agent_;
};

} // namespace syncnorm
