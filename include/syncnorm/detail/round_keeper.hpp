#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/detail/brought_here.hpp"
#include "syncnorm/detail/deadline_watch.hpp"
#include "syncnorm/detail/relay_wire.hpp"
#include "syncnorm/detail/reply_target.hpp"
#include "syncnorm/detail/roster.hpp"
#include "syncnorm/detail/round_monitor.hpp"
#include "syncnorm/detail/round_seats.hpp"
#include "syncnorm/detail/round_text.hpp"
#include "syncnorm/detail/round_time.hpp"
#include "syncnorm/detail/same_actor.hpp"
#include "syncnorm/sync_callback.hpp"
#include "syncnorm/sync_options.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace syncnorm::detail {

/// What a master and a relay have in common: both collect one message from
/// every participant and answer all of them, with a reply or with one error.
/// This file lists the messages; their handling is in `round_members.hpp` (who
/// takes part), `round_course.hpp` (a round from its first message to its
/// answer) and `round_failure.hpp` (how it fails, and when).
template <class In, class Out>
class round_keeper
    : public brought_here<typename sync_master_actor<In, Out>::base> {
public:
  using super = brought_here<typename sync_master_actor<In, Out>::base>;
  using typename super::behavior_type;

  /// @param options fully set: `resolve` has been applied.
  /// @param brief   whether `complete` takes microseconds and never waits.
  round_keeper(caf::actor_config& config, sync_options options, roster members,
               bool brief)
      : super{config, brief},
        layer_name_{std::move(options.layer)},
        layer_{layer_hash(layer_name_)},
        deadline_{options.deadline.value()},
        policy_{options.policy.value()},
        monitor_{this->system(),
                 members.find(0) ? layer_name_ : layer_name_ + " (relay)"},
        seats_{std::move(members)} {}

  void on_exit() override {
    exiting_ = true;
    fail(make_error(errc::master_down,
                    exited_text(where() + ": the master", this->fail_state())),
         fault::elsewhere);
    end_deadline_watch(std::exchange(watch_, nullptr));
    for (const auto& [who, watched] : std::exchange(watched_, {}))
      detail::demonitor(this, watched);
    monitor_.ended(where());
  }

  behavior_type make_behavior() override {
    return {
        [this](register_slave_atom, std::int64_t id) {
          return enlist(participant::slave(id));
        },
        [this](run_slave_atom, const round_tag& tag, In& message) {
          return run_slave(tag, message);
        },
        [this](run_slave_atom, const round_tag& tag, In& message,
               reply_slot& slot) { run_slave_thread(tag, message, slot); },
        [this](run_master_atom, In& message) { return run_master(message); },
        [this](run_master_atom, In& message, reply_slot& slot) {
          run_master_thread(message, slot);
        },
        [this](nr_slaves_atom) { return nr_slaves(); },
        [this](get_metrics_atom) { return count(); },
        [this](give_up_atom, const round_tag& tag, const std::string& why) {
          give_up(tag, why);
        },
        [this](give_up_atom, const round_tag&, const std::string& why,
               const reply_slot& proof) {
          if (proof.is_from_here())
            give_up_owner(why);
        },
        [this](check_deadline_atom) { check_deadline(); },
        [this](register_relay_atom, std::int64_t first, std::int64_t count) {
          return enlist(participant::relay(first, count));
        },
        [this](run_relay_atom, const round_tag& tag, const relay_parts& parts) {
          return run_relay(tag, parts);
        },
        [this](round_failed_atom, const round_tag& tag, const caf::error& why) {
          on_round_failed(tag, why);
        },
        [this](report_late_atom, const round_tag& tag, caf::timespan grace) {
          on_report_late(tag, grace);
        },
    };
  }

protected:
  using target = reply_target<Out>;
  /// The sender of a message; empty for threads. They send through a slot,
  /// which no other node can make.
  using origin_type = std::optional<const caf::actor_control_block*>;
  using time_point = caf::actor_clock::time_point;

  /// Where a round failed: here or below, or above this actor.
  enum class fault { here, elsewhere };

  // -- what a master and a relay do differently -------------------------------

  /// Called when every participant has sent its message. Calls `answer` or
  /// `fail`, now or later; an exception becomes the error of the round.
  virtual void complete(std::span<identified<In>> messages) = 0;

  /// Why no relay can register here; nothing if relays can.
  virtual std::optional<caf::error> refuse_relay() {
    return std::nullopt;
  }

  /// The answer to a registration; `tag` belongs to the sender's first message.
  virtual caf::result<slave_ticket> welcome(const round_tag& tag) {
    return ticket_for(tag);
  }

  /// Whether those who registered in this generation have their tickets.
  [[nodiscard]] virtual bool has_welcomed() const {
    return true;
  }

  /// Somebody registers under an identifier that is already taken.
  virtual void on_contest() {}

  virtual void on_new_generation() {}

  /// Whether an actor above decides what the error means for this round, and
  /// tells all.
  virtual bool is_decided_above(const caf::error&) {
    return false;
  }

  virtual void on_failed(fault) {}

  /// The last participant was expelled.
  virtual void on_deserted(const caf::error&) {}

  /// `complete` was called and no answer came in time.
  virtual void on_overdue() {}

  /// How long a round may take from its first message on.
  [[nodiscard]] virtual caf::timespan limit() const {
    return deadline_;
  }

  /// How long late relays may take to report whom they wait for.
  [[nodiscard]] virtual caf::timespan grace() const {
    return grace_of(deadline_);
  }

  /// The deadline is over, and the late relays have reported whom they wait
  /// for, or their time for that is over, too.
  virtual void on_late() {
    expire();
  }

  virtual void on_report_late(const round_tag&, caf::timespan) {}

  /// A relay reports that the round has failed below it.
  virtual void on_round_failed(const round_tag& tag, const caf::error& why);

  virtual void on_down(const caf::actor_addr& who, const caf::error& reason);

  // -- for derived classes ----------------------------------------------------

  [[nodiscard]] std::string where() const {
    return where_text(layer_name_, round_);
  }

  [[nodiscard]] std::uint64_t layer() const noexcept {
    return layer_;
  }

  [[nodiscard]] caf::timespan deadline() const noexcept {
    return deadline_;
  }

  [[nodiscard]] failure_policy policy() const noexcept {
    return policy_;
  }

  /// Adopts the rules of a ticket, which may come from another node.
  void adopt_rules(const slave_ticket& ticket) {
    deadline_ = std::clamp(ticket.deadline, caf::timespan{0}, max_deadline);
    policy_ = ticket.survivors ? failure_policy::continue_with_survivors
                               : failure_policy::fail_round;
  }

  /// Identifies one of this actor's rounds.
  struct round_name {
    std::uint64_t generation;
    std::uint64_t round;

    bool operator==(const round_name&) const = default;
  };

  [[nodiscard]] round_name current_round() const noexcept {
    return {generation_, round_};
  }

  /// Whether `complete` was called for this round.
  [[nodiscard]] bool is_complete() const noexcept {
    return completed_;
  }

  /// The time from the first message of the complete round to its last.
  [[nodiscard]] caf::timespan waited() const noexcept {
    return waited_;
  }

  /// Set from a round's failure to the next generation.
  [[nodiscard]] const std::optional<caf::error>& failure() const noexcept {
    return failure_;
  }

  /// Whether others may still report who is late.
  [[nodiscard]] bool is_patient() const noexcept {
    return patience_.has_value();
  }

  [[nodiscard]] slave_ticket ticket_for(const round_tag& tag) const {
    return {tag, deadline_, policy_ == failure_policy::continue_with_survivors};
  }

  [[nodiscard]] const roster& members() const noexcept {
    return seats_.members();
  }

  void watch_actor(const caf::actor& participant);

  /// Ends the round: `reply_of(i)` is the reply to the participant at position
  /// i. Participants that have registered since the round was complete take
  /// part in the next.
  template <class ReplyOf>
  void answer(ReplyOf reply_of);

  /// Ends the round with one error for everybody who has sent a message. The
  /// others get it when they send one; relays get it at once.
  void fail(caf::error reason, fault from = fault::here);

  /// The same, with an error that this relay's parent has reported.
  void fail_as_reported(const caf::error& reason);

  void expire();

  /// Asks the late relays whom they wait for, and gives them `grace` to answer.
  /// Returns false if there are none.
  bool ask_late_relays(caf::timespan grace);

  /// Calls `on_late` after `delay`, if the round has not ended by then.
  void be_patient(caf::timespan delay);

  /// Who is late, as far as this actor knows.
  [[nodiscard]] caf::error lateness() const;

  /// The time since the round's first message.
  [[nodiscard]] caf::timespan elapsed() const {
    return seats_.arrived() == 0 ? caf::timespan{0}
                                 : this->clock().now() - started_;
  }

private:
  // -- messages of actors and of threads of this process ----------------------

  caf::result<Out> run_slave(const round_tag& tag, In& message) {
    auto* origin = this->current_sender().get();
    contribute(tag, message, promise_reply(), origin);
    return caf::delegated<Out>{};
  }

  void run_slave_thread(const round_tag& tag, In& message, reply_slot& slot) {
    if (slot.is_from_here())
      contribute(tag, message, target{std::move(slot)}, std::nullopt);
  }

  caf::result<Out> run_master(In& message) {
    // An anonymous message may have come from any node.
    if (!this->current_sender())
      return make_error(errc::unregistered, anonymous_text(where()));
    adopt_owner();
    lead(message, promise_reply());
    return caf::delegated<Out>{};
  }

  void run_master_thread(In& message, reply_slot& slot) {
    if (!slot.is_from_here())
      return;
    forget_owner();
    lead(message, target{std::move(slot)});
  }

  caf::result<Out> run_relay(const round_tag& tag, const relay_parts& parts) {
    auto* origin = this->current_sender().get();
    contribute_parts(tag, parts, promise_reply(), origin);
    return caf::delegated<Out>{};
  }

  /// From this call on the target holds the sender, and `current_sender` is
  /// empty.
  target promise_reply() {
    return target{*this, this->make_response_promise()};
  }

  [[nodiscard]] round_tag tag_of(std::size_t position) const {
    return {layer_, generation_, round_, seats_[position].identifier};
  }

  template <class... Ts>
  void tell(std::size_t position, const Ts&... xs);

  // -- who takes part ---------------------------------------------------------

  caf::result<slave_ticket> enlist(participant x);
  void begin_generation();
  /// The sender leads from now on.
  void adopt_owner();
  void forget_owner();
  [[nodiscard]] std::uint64_t nr_slaves() const;
  /// Counts the owner, each slave and each relay as one.
  [[nodiscard]] std::uint64_t nr_participants() const;
  [[nodiscard]] sync_metrics count() const;

  /// Returns why a slave's or a relay's message is refused, or nothing. Blames
  /// the sender first where it is at fault.
  std::optional<caf::error> refuse(const round_tag& tag,
                                   std::optional<std::size_t> position,
                                   origin_type origin, bool is_relay);

  [[nodiscard]] bool is_from(std::size_t position, origin_type origin) const;
  [[nodiscard]] caf::error not_a_member(std::int64_t identifier) const;

  // -- a round ----------------------------------------------------------------

  void contribute(const round_tag& tag, In& message, target&& to,
                  origin_type origin);
  /// If the message is for the next round, from somebody who registered while
  /// this one waits for its answer, keeps it until then and returns true.
  template <class Message>
  bool keep_early(const round_tag& tag, Message& message, target& to,
                  origin_type origin);
  void take_early();
  void contribute_parts(const round_tag& tag, const relay_parts& parts,
                        target&& to, origin_type origin);
  void lead(In& message, target&& to);
  void accept(std::size_t position, In& message, target&& to);

  /// @param waited how long the participant has waited for its own replicas.
  void arrive(std::size_t position, target&& to, caf::timespan waited);
  void complete_if_ready();
  void end_round();

  // -- failure ----------------------------------------------------------------

  /// Whether a participant that exits with that reason leaves in good order,
  /// between two rounds.
  [[nodiscard]] bool leaves_quietly(const caf::error& reason) const {
    return seats_.arrived() == 0
           && (!reason || reason == caf::exit_reason::normal
               || reason == caf::exit_reason::user_shutdown);
  }

  /// The same for what a relay, or a relay's parent, reports: this does not say
  /// whether the one that is down left in good order. Where its loss fails the
  /// next round for all, it is counted then; where rounds go on, it is counted
  /// now.
  [[nodiscard]] bool may_be_quiet(const caf::error& reason) const {
    return seats_.arrived() == 0 && reason == errc::participant_down
           && policy_ == failure_policy::fail_round;
  }

  /// Deals with the participant at fault: by the policy, the round fails for
  /// all or goes on without it. Returns the error.
  /// @param quietly see `leaves_quietly`.
  caf::error blame(std::size_t position, caf::error reason,
                   bool quietly = false);

  caf::error blame(std::size_t position, errc code, std::string text) {
    return blame(position, make_error(code, std::move(text)));
  }

  /// The same for a participant whose message is answered with the error, which
  /// informs it.
  caf::error blame_sender(std::size_t position, errc code, std::string text);

  /// @param counts whether to count this as a failure.
  void expel(std::size_t position, const caf::error& reason, bool counts);

  /// The answer to a message that comes after the round has failed: the round's
  /// error for a participant that has not had it, else `stale`.
  caf::error after_failure(std::size_t position);

  void give_up(const round_tag& tag, const std::string& why);
  /// The same for an owner that is a thread.
  void give_up_owner(const std::string& why);
  /// Whether the sender may report that the owner gives up: the owner itself
  /// or, unless an actor led last, any actor of this node.
  [[nodiscard]] bool speaks_for_owner();
  void give_up_at(std::size_t position, const std::string& why);
  void arm(caf::timespan delay);
  void check_deadline();

  /// A relay reports that it is late, and whom it waits for. The round ends
  /// when all other late relays have reported, too: the replicas of each are
  /// named.
  void take_report(std::size_t position, const caf::error& reason);
  void conclude_if_all_reported();
  void conclude();
  void stop_asking() noexcept {
    asks_ = false;
    patience_.reset();
  }

  const std::string layer_name_;
  const std::uint64_t layer_;
  caf::timespan deadline_;
  failure_policy policy_;
  round_monitor monitor_;

  // Who takes part.
  std::uint64_t generation_ = 1;
  round_seats<In, Out> seats_;
  std::map<std::int64_t, caf::error> expelled_;
  std::map<caf::actor_addr, monitored, actor_order> watched_;
  bool exiting_ = false;

  // The round.
  std::uint64_t round_ = 1;
  /// Whether a round of this generation was answered.
  bool has_run_ = false;
  bool completed_ = false;
  time_point started_;
  caf::timespan waited_{0};
  /// What `keep_early` keeps.
  std::map<std::int64_t, std::function<void()>> early_;

  // Its failure.
  std::optional<caf::error> failure_;
  /// The failure is that somebody left in good order, between two rounds. It is
  /// neither counted nor logged until somebody is told of it.
  bool is_untold_ = false;

  // Its deadline: the timer that rings next, and when, unless it has rung.
  caf::actor watch_;
  std::optional<time_point> rings_;
  /// Until when others may report who is late.
  std::optional<time_point> patience_;
  /// Whether late relays were asked whom they wait for, and the reports so far.
  bool asks_ = false;
  late_reports reports_;
};

} // namespace syncnorm::detail

#include "syncnorm/detail/round_course.hpp"
#include "syncnorm/detail/round_failure.hpp"
#include "syncnorm/detail/round_members.hpp"
