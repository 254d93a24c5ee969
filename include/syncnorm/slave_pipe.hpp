#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/detail/agent_guard.hpp"
#include "syncnorm/detail/is_distant.hpp"
#include "syncnorm/detail/pipe_agent.hpp"
#include "syncnorm/detail/request_master.hpp"
#include "syncnorm/detail/thread_link.hpp"
#include "syncnorm/sync_options.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace syncnorm {

/// A slave's end of the connection to its master, good for one generation. It
/// takes part in a round in three ways: from an actor, which goes on when the
/// reply comes; as a future; and blocking.
///
/// An actor makes one from the ticket that its registration was answered with.
/// An ordinary thread gets one from `sync_master::register_slave` or
/// `register_slave_thread`; letting go of that one is leaving: a round that
/// waits for it fails with `participant_down`. The master learns of it a little
/// later: until then, or until a round has run or failed, another registration
/// under its identifier is a `duplicate_identifier`. After an error a pipe is
/// of no more use: register again. One that was moved from, or made with a null
/// master, answers `invalid_argument`; to an actor, it is CAF's own
/// (`caf::sec::invalid_argument`, with CAF 1.x `caf::sec::invalid_request`).
///
/// One thread or actor uses a pipe at a time. What waits (`run_slave` without
/// an actor, `await_reply`, the future's `get`) is not to be called from one of
/// CAF's workers. The actor system must outlive a thread's pipe, or the
/// system's destructor waits for ever.
template <class In, class Out>
class slave_pipe {
public:
  /// The handle of its master.
  using master_type = sync_master_actor<In, Out>;

  /// For an actor that was registered by a request of its own.
  slave_pipe(master_type master, const slave_ticket& ticket)
      : master_{std::move(master)},
        ticket_{ticket} {}

  /// The identifier under which this slave is registered: 1 or more.
  [[nodiscard]] std::int64_t identifier() const noexcept {
    return ticket_.first.identifier;
  }

  /// The master's generation in which it is registered.
  [[nodiscard]] std::uint64_t generation() const noexcept {
    return ticket_.first.generation;
  }

  /// Sends `message` into the next round from the actor `self`, a pointer to it
  /// or a `caf::scoped_actor`, which must be the one that registered. Use
  /// `.then(...)` on what it returns; the master answers in time. If it has
  /// exited, or its node is considered lost, the error is `master_down`, or
  /// CAF's `request_receiver_down` if this node has not yet heard of its end;
  /// if it hangs on another node, CAF's `request_timeout`, a second after the
  /// round's deadline.
  template <class Self>
  auto run_slave(Self&& self, In message) {
    return detail::request_master(self, patience(), master_, identifier(),
                                  run_slave_atom_v, next_tag(),
                                  std::move(message));
  }

  /// Sends `message` into the next round and returns the future of the reply,
  /// which is the same object each time: get it before the next call. It waits
  /// for nobody, but the callback may run in this call; see `sync_callback`.
  /// The future's `get` has no deadline of its own, if a callback or another
  /// node hangs; `await_reply` has.
  ///
  /// A message that cannot be sent has a future of its own, which holds the
  /// error: `invalid_argument` if the last reply has not been fetched, or for
  /// an actor's pipe to a master on another node; `deadline_exceeded` if this
  /// participant has left by its own timeout.
  future_result<Out>& run_slave_async(In message) {
    if (!link_)
      link_ = std::make_shared<detail::thread_link<Out>>();
    if (auto reason = refusal())
      return link_->refuse(std::move(reason));
    link_->expect();
    auto slot = detail::make_reply_slot(link_->result, identifier());
    if (!detail::is_distant(master_))
      detail::send_and_lend(master_.home_system(), master_, run_slave_atom_v,
                            next_tag(), std::move(message), std::move(slot));
    else
      detail::anon_send(agent_->actor(), run_slave_atom_v, next_tag(),
                        std::move(message), std::move(slot));
    return *link_->result;
  }

  /// Sends `message` into the next round and waits for the reply.
  /// @param timeout how long it waits once the message is sent, which takes as
  ///                long as the callback if that runs here (see
  ///                `run_slave_async`); left out, a second more than the
  ///                round's own deadline. Past it the result is
  ///                `deadline_exceeded`, and this participant has left. For a
  ///                thread's pipe only: an actor's answers `invalid_argument`,
  ///                and sends nothing.
  [[nodiscard]] caf::expected<Out>
  run_slave(In message, std::optional<caf::timespan> timeout = std::nullopt) {
    if (auto reason = refusal())
      return reason;
    if (!agent_ && timeout)
      return no_timer();
    std::ignore = run_slave_async(std::move(message));
    return await_reply(timeout);
  }

  /// Waits for the reply to what `run_slave_async` has sent, which may have
  /// been another thread. It is `invalid_argument` if there is no reply to wait
  /// for, and `deadline_exceeded` at once if this participant has left.
  /// @param timeout as for `run_slave`.
  [[nodiscard]] caf::expected<Out>
  await_reply(std::optional<caf::timespan> timeout = std::nullopt) {
    if (!master_)
      return no_master();
    if (!agent_ && timeout)
      return no_timer();
    if (link_ && link_->why_left())
      return link_->why_left();
    if (!link_ || !link_->is_outstanding())
      return make_error(errc::invalid_argument,
                        about()
                            + "await_reply waits for the reply to what "
                              "run_slave_async has sent, and there is "
                              "none outstanding");
    if (!agent_)
      return link_->result->get();
    return link_->wait(agent_->actor(), timeout.value_or(patience()), [this] {
      return "replica " + std::to_string(identifier()) + ", round "
             + std::to_string(ticket_.first.round - 1) + ": ";
    });
  }

  /// Tells the master that this slave cannot do its part of the next round: the
  /// round fails with `participant_failed` and that reason for the others, or,
  /// with `continue_with_survivors`, goes on without this slave. So does one
  /// that is not complete yet, also if this slave has sent its message into it:
  /// to have its reply, wait for that first. For an actor, `self` is the one
  /// that registered.
  template <class Self>
  void give_up(Self&& self, std::string why) {
    detail::send(self, master_, give_up_atom_v, next_tag(), std::move(why));
  }

  /// The same for a thread.
  /// @returns no error, or `invalid_argument` for an actor's pipe, which tells
  ///          nobody: the master takes it from the actor only.
  [[nodiscard]] caf::error give_up(std::string why) {
    if (!master_)
      return no_master();
    if (!agent_)
      return make_error(errc::invalid_argument,
                        about()
                            + "an actor's pipe gives up by give_up(self, why)");
    // By the way that its messages go, none of which may overtake it; in the
    // name of the agent, which is the one that registered.
    if (!detail::is_distant(master_))
      detail::send_as(agent_->actor(), master_, give_up_atom_v, next_tag(),
                      std::move(why));
    else
      detail::anon_send(agent_->actor(), give_up_atom_v, next_tag(),
                        std::move(why), detail::reply_slot{link_});
    return {};
  }

private:
  template <class I, class O>
  friend caf::expected<slave_pipe<I, O>> register_slave_thread(
      caf::actor_system& system,
      const std::type_identity_t<sync_master_actor<I, O>>& master,
      std::int64_t identifier);

  /// For a thread: `agent` was registered in its place.
  slave_pipe(master_type master, const slave_ticket& ticket, caf::actor agent,
             std::shared_ptr<detail::thread_link<Out>> link)
      : master_{std::move(master)},
        ticket_{ticket},
        agent_{std::make_unique<detail::agent_guard>(std::move(agent))},
        link_{std::move(link)} {}

  [[nodiscard]] std::string about() const {
    return "slave_pipe of replica " + std::to_string(identifier()) + ": ";
  }

  [[nodiscard]] caf::error no_master() const {
    return make_error(errc::invalid_argument,
                      about()
                          + "it has no master: it was moved from, or made with "
                            "a null one");
  }

  /// Nobody rings for who waits on an actor's pipe.
  [[nodiscard]] caf::error no_timer() const {
    return make_error(errc::invalid_argument,
                      about()
                          + "an actor's pipe has no timeout; use "
                            "run_slave(self, message), or a thread's pipe");
  }

  /// Why a thread's message cannot be sent, if so.
  [[nodiscard]] caf::error refusal() const {
    if (!master_)
      return no_master();
    if (link_ && link_->why_left())
      return link_->why_left();
    if (link_ && link_->is_outstanding())
      return make_error(errc::invalid_argument,
                        about()
                            + "the reply to the last message has not been "
                              "fetched");
    if (!agent_ && detail::is_distant(master_))
      return make_error(errc::invalid_argument,
                        about()
                            + "an actor's pipe to a master on another node "
                              "has no future; use run_slave(self, "
                              "message)");
    return {};
  }

  /// For an answer. The ticket may come from another node.
  [[nodiscard]] caf::timespan patience() const noexcept {
    return std::clamp(ticket_.deadline, caf::timespan{0}, max_deadline)
           + std::chrono::seconds{1};
  }

  round_tag next_tag() noexcept {
    auto tag = ticket_.first;
    ++ticket_.first.round;
    return tag;
  }

  master_type master_;
  slave_ticket ticket_;
  std::unique_ptr<detail::agent_guard> agent_;
  std::shared_ptr<detail::thread_link<Out>> link_;
};

/// Registers an ordinary thread as a slave of `master`, here or on another
/// node, and waits for the answer.
/// @param system must outlive the pipe, or the system's destructor waits for
///               ever.
/// @returns the pipe, or an error of `register_slave_atom`, `invalid_argument`
///          for a null master, or `master_down` for one that has not answered
///          after a minute.
///
/// Threads: waits for actors; not to be called from one of CAF's workers (it
/// may wait for ever), but from a detached actor or a thread of your own.
template <class In, class Out>
[[nodiscard]] caf::expected<slave_pipe<In, Out>> register_slave_thread(
    caf::actor_system& system,
    const std::type_identity_t<sync_master_actor<In, Out>>& master,
    std::int64_t identifier) {
  if (!master)
    return make_error(errc::invalid_argument,
                      "register_slave_thread: replica "
                          + std::to_string(identifier)
                          + ": expected a master, got a null handle");
  auto link = std::make_shared<detail::thread_link<Out>>();
  auto agent = detail::spawn_pipe_agent<In, Out>(system, master, link);
  detail::agent_guard guard{agent};
  auto answer = std::make_shared<future_result<slave_ticket>>();
  detail::anon_send(agent, register_slave_atom_v, identifier,
                    detail::make_reply_slot(answer, identifier));
  auto ticket = answer->get();
  if (!ticket)
    return std::move(ticket.error());
  guard.release();
  return slave_pipe<In, Out>{master, *ticket, agent, link};
}

} // namespace syncnorm
