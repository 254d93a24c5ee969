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

/// A slave's end of the connection to its master, valid for one generation. It
/// offers three ways to take part in a round: from an actor, which goes on when
/// the reply comes; with a future; and blocking.
///
/// An actor makes a pipe from the ticket that answers its registration. An
/// ordinary thread gets one from `sync_master::register_slave` or
/// `register_slave_thread`. Letting go of a thread's pipe means leaving: a
/// round that waits for this slave fails with `participant_down`. The master
/// learns of it a little later; until then, or until a round has run or failed,
/// another registration under the same identifier is a `duplicate_identifier`.
/// After an error, a pipe can no longer be used: register again. A pipe that
/// was moved from, or made with a null master, answers `invalid_argument`; an
/// actor gets CAF's own code (`caf::sec::invalid_argument`, or with CAF 1.x
/// `caf::sec::invalid_request`).
///
/// Only one thread or actor may use a pipe at a time. Do not call the functions
/// that wait (`run_slave` without an actor, `await_reply`, the future's `get`)
/// from one of CAF's workers. The actor system must outlive a thread's pipe, or
/// the system's destructor waits forever.
template <class In, class Out>
class slave_pipe {
public:
  /// The handle of its master.
  using master_type = sync_master_actor<In, Out>;

  /// For an actor that was registered by its own request.
  slave_pipe(master_type master, const slave_ticket& ticket)
      : master_{std::move(master)},
        ticket_{ticket} {}

  /// The identifier under which this slave is registered: 1 or more.
  [[nodiscard]] std::int64_t identifier() const noexcept {
    return ticket_.first.identifier;
  }

  /// The master's generation in which this slave is registered.
  [[nodiscard]] std::uint64_t generation() const noexcept {
    return ticket_.first.generation;
  }

  /// Sends `message` into the next round from the actor `self` (a pointer or a
  /// `caf::scoped_actor`), which must be the actor that registered. Use
  /// `.then(...)` on the result; the master answers in time. If the master has
  /// exited, or its node is considered lost, the error is `master_down`, or
  /// CAF's `request_receiver_down` if this node has not yet heard of the
  /// master's end; if the master hangs on another node, it is CAF's
  /// `request_timeout`, a second after the round's deadline.
  template <class Self>
  auto run_slave(Self&& self, In message) {
    return detail::request_master(self, patience(), master_, identifier(),
                                  run_slave_atom_v, next_tag(),
                                  std::move(message));
  }

  /// Sends `message` into the next round and returns the future of the reply.
  /// The future is the same object each time: get the reply before the next
  /// call. This call waits for nobody, but the callback may run in it; see
  /// `sync_callback`. The future's `get` has no deadline of its own if a
  /// callback or another node hangs; `await_reply` of a thread's pipe has one.
  ///
  /// If the message cannot be sent, a separate future holds the error:
  /// `invalid_argument` if the last reply has not been fetched, or for an
  /// actor's pipe to a master on another node; `deadline_exceeded` if this
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
  /// @param timeout how long to wait once the message is sent; sending takes as
  ///                long as the callback if that runs here (see
  ///                `run_slave_async`). If left out, a second more than the
  ///                round's own deadline. After that, the result is
  ///                `deadline_exceeded`, and this participant has left. All
  ///                this is for a thread's pipe: an actor's pipe waits until
  ///                the master answers; with a timeout, it answers
  ///                `invalid_argument` and sends nothing.
  [[nodiscard]] caf::expected<Out>
  run_slave(In message, std::optional<caf::timespan> timeout = std::nullopt) {
    if (auto reason = refusal())
      return reason;
    if (!agent_ && timeout)
      return no_timer();
    std::ignore = run_slave_async(std::move(message));
    return await_reply(timeout);
  }

  /// Waits for the reply to what `run_slave_async` has sent, possibly on
  /// another thread. The result is `invalid_argument` if there is no reply to
  /// wait for, and `deadline_exceeded` at once if this participant has left.
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
  /// with `continue_with_survivors`, goes on without this slave. The same
  /// happens to a round that is not complete yet, even if this slave has sent
  /// its message into it: to get that round's reply, wait for it first. `self`
  /// is the actor that registered.
  template <class Self>
  void give_up(Self&& self, std::string why) {
    detail::send(self, master_, give_up_atom_v, next_tag(), std::move(why));
  }

  /// The same for a thread.
  /// @returns no error, or `invalid_argument` for an actor's pipe, which tells
  ///          nobody: the master accepts this only from the actor.
  [[nodiscard]] caf::error give_up(std::string why) {
    if (!master_)
      return no_master();
    if (!agent_)
      return make_error(errc::invalid_argument,
                        about()
                            + "an actor's pipe gives up by give_up(self, why)");
    // Sent the same way as its messages, none of which may overtake it, and in
    // the name of the agent, which is the actor that registered.
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

  /// An actor's pipe has no timer to wake a thread that waits.
  [[nodiscard]] caf::error no_timer() const {
    return make_error(errc::invalid_argument,
                      about()
                          + "an actor's pipe has no timeout; use "
                            "run_slave(self, message), or a thread's pipe");
  }

  /// Why a thread's message cannot be sent, if it cannot.
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

  /// How long to wait for an answer. The ticket may come from another node.
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
/// @param system must outlive the pipe, or the system's destructor waits
///               forever.
/// @returns the pipe, or an error of `register_slave_atom`, `invalid_argument`
///          for a null master, or `master_down` for a master that has not
///          answered after a minute.
///
/// Threads: waits for actors; call it from a detached actor or a thread of your
/// own, not from one of CAF's workers (it may wait forever).
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
