#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/detail/deadline_watch.hpp"
#include "syncnorm/detail/relay_wire.hpp"
#include "syncnorm/detail/reply_target.hpp"
#include "syncnorm/detail/roster.hpp"
#include "syncnorm/detail/round_monitor.hpp"
#include "syncnorm/detail/round_text.hpp"
#include "syncnorm/sync_options.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace syncnorm::detail {

/// What a master and a relay have in common: they collect one message from
/// every participant, and answer all of them, with a reply or with one error.
/// Three vectors run in parallel, ordered by identifier: who takes part, what
/// they sent, and where their answer goes.
template <class In, class Out>
class round_keeper : public sync_master_actor<In, Out>::base {
public:
  using super = typename sync_master_actor<In, Out>::base;
  using typename super::behavior_type;

  /// @param options with nothing left open: `resolve` has been applied.
  round_keeper(caf::actor_config& config, sync_options options, roster members)
      : super{config},
        layer_name_{std::move(options.layer)},
        deadline_{options.deadline.value()},
        policy_{options.policy.value()},
        layer_{layer_hash(layer_name_)},
        roster_{std::move(members)},
        monitor_{this->system(),
                 roster_.find(0) ? layer_name_ : layer_name_ + " (relay)"},
        messages_(roster_.size()),
        targets_(roster_.size()) {}

  void on_exit() override {
    fail(make_error(errc::master_down, where() + ": the master has exited"),
         fault::elsewhere);
    monitor_.ended(where());
  }

  behavior_type make_behavior() override {
    return {
        [this](register_slave_atom, std::int64_t id) {
          return enlist(participant::slave(id));
        },
        [this](run_slave_atom, const round_tag& tag,
               In& message) -> caf::result<Out> {
          auto* origin = this->current_sender().get();
          auto promise = promise_reply();
          contribute(tag, message, target{promise}, origin);
          return promise;
        },
        [this](run_slave_atom, const round_tag& tag, In& message,
               reply_slot& slot) {
          contribute(tag, message, target{std::move(slot)}, std::nullopt);
        },
        [this](run_master_atom, In& message) -> caf::result<Out> {
          adopt_owner();
          auto promise = promise_reply();
          lead(message, target{promise});
          return promise;
        },
        [this](run_master_atom, In& message, reply_slot& slot) {
          lead(message, target{std::move(slot)});
        },
        [this](nr_slaves_atom) { return nr_slaves(); },
        [this](get_metrics_atom) { return monitor_.metrics(); },
        [this](give_up_atom, const round_tag& tag, const std::string& why) {
          give_up(tag, why);
        },
        [this](check_deadline_atom) { check_deadline(); },
        [this](register_relay_atom, std::int64_t first, std::int64_t count) {
          return enlist(participant::relay(first, count));
        },
        [this](run_relay_atom, const round_tag& tag,
               const relay_parts& parts) -> caf::result<Out> {
          auto* origin = this->current_sender().get();
          auto promise = promise_reply();
          contribute_parts(tag, parts, target{promise}, origin);
          return promise;
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
  /// Who sent a message. Nothing for threads: they send through their slot,
  /// which no other node can make.
  using origin_type = std::optional<const caf::actor_control_block*>;
  using time_point = caf::actor_clock::time_point;

  /// Where a round failed: here or below, or above this actor.
  enum class fault { here, elsewhere };

  // -- what a master and a relay do differently -------------------------------

  /// Every participant has sent its message. Calls `answer` or `fail`, now or
  /// later; what it throws is the error of the round.
  virtual void complete(std::span<identified<In>> messages) = 0;

  /// Why no relay can register here, if so.
  virtual std::optional<caf::error> refuse_relay() {
    return std::nullopt;
  }

  /// The answer to a registration; `tag` is that of the first message.
  virtual caf::result<slave_ticket> welcome(const round_tag& tag) {
    return ticket_for(tag);
  }

  virtual void on_new_generation() {}

  virtual void on_failed(fault) {}

  /// The last participant was expelled.
  virtual void on_deserted(const caf::error&) {}

  /// `complete` was called and no answer came in time.
  virtual void on_overdue() {}

  /// How long a round may take from its first message on.
  [[nodiscard]] virtual caf::timespan limit() const {
    return deadline_;
  }

  virtual void on_report_late(const round_tag&, caf::timespan) {}

  /// A relay says that the round has failed below it.
  virtual void on_round_failed(const round_tag& tag, const caf::error& why) {
    auto position = roster_.find(tag.identifier);
    if (!position || !is_from(*position, this->current_sender().get())
        || !roster_[*position].is_relay || failure_
        || tag.generation != generation_)
      return;
    std::ignore =
        blame(*position, reported_error(why, errc::participant_failed));
    complete_if_ready();
  }

  virtual void on_down(const caf::actor_addr& who, const caf::error& reason) {
    watched_.erase(who);
    for (std::size_t i = roster_.size(); i-- > 0 && !failure_;)
      if (roster_[i].address == who)
        std::ignore = blame(i, errc::participant_down,
                            down_text(where(), roster_[i], reason));
    complete_if_ready();
  }

  // -- for those who derive ---------------------------------------------------

  [[nodiscard]] std::string where() const {
    return where_text(layer_name_, round_);
  }

  [[nodiscard]] slave_ticket ticket_for(const round_tag& tag) const {
    return {tag, deadline_, policy_ == failure_policy::continue_with_survivors};
  }

  void watch(const caf::actor& participant) {
    if (watched_.insert(participant.address()).second)
      detail::monitor(
          this, participant,
          [this](const caf::actor_addr& who, const caf::error& reason) {
            on_down(who, reason);
          });
  }

  /// Ends the round: `reply_of(i)` is the reply of the participant at i.
  template <class ReplyOf>
  void answer(ReplyOf reply_of) {
    monitor_.completed(this->clock().now() - started_);
    for (std::size_t i = 0; i < roster_.size(); ++i) {
      targets_[i].deliver(reply_of(i));
      messages_[i] = {roster_[i].identifier, {}};
      roster_[i].arrived = false;
    }
    clear_round();
    has_run_ = true;
    ++round_;
  }

  /// Ends the round with one error for everybody who has sent a message. Those
  /// who have not get it when they do; relays at once.
  void fail(caf::error reason, fault from = fault::here) {
    // Between two rounds these end nothing that has begun.
    auto between =
        arrived_ == 0 && (reason == errc::stale || reason == errc::master_down);
    failure_ = std::move(reason);
    if (!between)
      monitor_.failed(*failure_);
    for (std::size_t i = 0; i < roster_.size(); ++i) {
      auto arrived = std::exchange(roster_[i].arrived, false);
      roster_[i].informed = arrived || roster_[i].is_relay;
      if (arrived)
        targets_[i].deliver(*failure_);
      else if (roster_[i].is_relay)
        tell(i, round_failed_atom_v, tag_of(i), *failure_);
      messages_[i].message = {};
    }
    clear_round();
    on_failed(from);
  }

  void expire() {
    auto text = late_text(where(), deadline_, roster_);
    auto lost = policy_ == failure_policy::fail_round
                || (roster_.find(0) && !roster_[0].arrived);
    if (lost)
      return fail(make_error(errc::deadline_exceeded, std::move(text)));
    for (std::size_t i = roster_.size(); i-- > 0 && !failure_;)
      if (!roster_[i].arrived)
        std::ignore = blame(i, errc::deadline_exceeded, text);
    roster_.close();
    complete_if_ready();
  }

  /// Asks the relays that are late whom they wait for, and gives them that
  /// long. Returns false if there are none, or if all are late.
  bool ask_late_relays(caf::timespan grace) {
    auto asked = false;
    if (arrived_ == 0)
      return false;
    for (std::size_t i = 0; i < roster_.size(); ++i)
      if (roster_[i].is_relay && !roster_[i].arrived) {
        tell(i, report_late_atom_v, tag_of(i), grace);
        asked = true;
      }
    if (asked) {
      patience_ = this->clock().now() + grace;
      arm(grace);
    }
    return asked;
  }

  const std::string layer_name_;
  caf::timespan deadline_;
  failure_policy policy_;
  const std::uint64_t layer_;
  roster roster_;
  round_monitor monitor_;
  std::uint64_t generation_ = 1;
  std::uint64_t round_ = 1;
  bool has_run_ = false;
  /// `complete` was called for this round.
  bool completed_ = false;
  time_point started_;
  /// Set from a round's failure to the next generation.
  std::optional<caf::error> failure_;

private:
  /// From here on the promise holds the sender: `current_sender` is empty.
  auto promise_reply() {
    return this->template make_response_promise<Out>();
  }

  template <class... Ts>
  void tell(std::size_t position, const Ts&... xs) {
    using handle = sync_master_actor<In, Out>;
    auto strong =
        caf::actor_cast<caf::strong_actor_ptr>(roster_[position].address);
    if (strong)
      detail::send(this, caf::actor_cast<handle>(strong), xs...);
  }

  [[nodiscard]] round_tag tag_of(std::size_t position) const {
    return {layer_, generation_, round_, roster_[position].identifier};
  }

  // -- membership -------------------------------------------------------------

  caf::result<slave_ticket> enlist(participant x) {
    auto origin = caf::actor_cast<caf::actor>(this->current_sender());
    if (!origin)
      return make_error(errc::unregistered,
                        where() + ": only an actor can register");
    if (auto refusal = x.is_relay ? refuse_relay() : std::nullopt)
      return std::move(*refusal);
    if (has_run_ || failure_)
      begin_generation();
    x.address = origin.address();
    auto added = roster_.add(x, where());
    if (!added)
      return std::move(added.error());
    auto at = static_cast<std::ptrdiff_t>(*added);
    messages_.insert(messages_.begin() + at, identified<In>{x.identifier, {}});
    targets_.insert(targets_.begin() + at, target{});
    watch(origin);
    monitor_.registered(where(), x.identifier, generation_, nr_slaves());
    return welcome(tag_of(*added));
  }

  void begin_generation() {
    fail(make_error(errc::stale,
                    where() + ": a new generation began in its middle"),
         fault::elsewhere);
    ++generation_;
    round_ = 1;
    has_run_ = false;
    failure_.reset();
    expelled_.clear();
    roster_.clear();
    messages_.assign(roster_.size(), {});
    targets_.clear();
    targets_.resize(roster_.size());
    on_new_generation();
    monitor_.began(generation_);
  }

  void adopt_owner() {
    auto origin = caf::actor_cast<caf::actor>(this->current_sender());
    if (!origin || !roster_.find(0) || roster_[0].address == origin.address())
      return;
    roster_[0].address = origin.address();
    watch(origin);
  }

  [[nodiscard]] std::uint64_t nr_slaves() const {
    return static_cast<std::uint64_t>(roster_.replicas())
           - (roster_.find(0) ? 1 : 0);
  }

  /// Ends the part of the participant at fault: by the policy, the round fails
  /// for all, or goes on without this one. Returns the error.
  caf::error blame(std::size_t position, caf::error reason) {
    if (policy_ == failure_policy::fail_round
        || roster_[position].identifier == 0) {
      fail(std::move(reason));
      return *failure_;
    }
    expel(position, reason);
    if (roster_.size() == 0 && roster_.is_full())
      on_deserted(reason);
    return reason;
  }

  caf::error blame(std::size_t position, errc code, std::string text) {
    return blame(position, make_error(code, std::move(text)));
  }

  void expel(std::size_t position, const caf::error& reason) {
    auto at = static_cast<std::ptrdiff_t>(position);
    if (roster_[position].arrived) {
      targets_[position].deliver(reason);
      --arrived_;
    } else if (roster_[position].is_relay) {
      tell(position, round_failed_atom_v, tag_of(position), reason);
    }
    monitor_.failed(reason);
    expelled_[roster_[position].identifier] = reason;
    below_.erase(roster_[position].identifier);
    roster_.erase(position);
    messages_.erase(messages_.begin() + at);
    targets_.erase(targets_.begin() + at);
  }

  // -- a round ----------------------------------------------------------------

  void contribute(const round_tag& tag, In& message, target to,
                  origin_type origin) {
    auto position = roster_.find(tag.identifier);
    if (auto refusal = refuse(tag, position, origin, false)) {
      to.deliver(std::move(*refusal));
      complete_if_ready();
    } else {
      accept(*position, message, std::move(to));
    }
  }

  void contribute_parts(const round_tag& tag, const relay_parts& parts,
                        target to, origin_type origin) {
    auto position = roster_.find(tag.identifier);
    if (auto refusal = refuse(tag, position, origin, true)) {
      to.deliver(std::move(*refusal));
      complete_if_ready();
      return;
    }
    auto values = unwrap_parts<In>(roster_[*position], parts);
    if (!values) {
      to.deliver(blame(
          *position, errc::malformed_message,
          damaged_text(where(), roster_[*position], text_of(values.error()))));
      complete_if_ready();
      return;
    }
    below_[tag.identifier] = std::move(*values);
    arrive(*position, std::move(to),
           std::clamp(parts.waited, caf::timespan{0}, deadline_));
  }

  void lead(In& message, target to) {
    if (!roster_.find(0))
      to.deliver(make_error(errc::invalid_argument,
                            where()
                                + ": a relay has no owner; send the "
                                  "master's message to the master"));
    else if (failure_)
      to.deliver(after_failure(0));
    else if (roster_[0].arrived)
      to.deliver(blame(0, errc::duplicate_message,
                       where() + ": the master sent two messages"));
    else
      accept(0, message, std::move(to));
  }

  /// Returns why a slave's or a relay's message cannot be taken, having blamed
  /// its sender where it is at fault.
  std::optional<caf::error> refuse(const round_tag& tag,
                                   std::optional<std::size_t> position,
                                   origin_type origin, bool is_relay) {
    if (tag.layer == layer_ && tag.generation != generation_)
      return make_error(errc::stale, stale_text(where(), tag.identifier,
                                                tag.generation, generation_));
    if (!position || !is_from(*position, origin)
        || roster_[*position].is_relay != is_relay)
      return not_a_member(tag.identifier);
    if (failure_)
      return after_failure(*position);
    if (tag.layer != layer_)
      return blame(*position, errc::wrong_layer,
                   wrong_layer_text(where(), tag.identifier));
    if (tag.round != round_)
      return blame(*position, errc::wrong_round,
                   wrong_round_text(where(), tag.identifier, tag.round));
    if (roster_[*position].arrived)
      return blame(*position, errc::duplicate_message,
                   twice_text(where(), tag.identifier));
    return std::nullopt;
  }

  [[nodiscard]] bool is_from(std::size_t position, origin_type origin) const {
    return !origin
           || caf::actor_cast<caf::actor_control_block*>(
                  roster_[position].address)
                  == *origin;
  }

  [[nodiscard]] caf::error not_a_member(std::int64_t identifier) const {
    auto i = expelled_.find(identifier);
    return i != expelled_.end()
               ? i->second
               : make_error(errc::unregistered,
                            unregistered_text(where(), identifier));
  }

  /// The answer to a message that comes after the round has failed: the round's
  /// error to those who have not had it, `stale` to the others.
  caf::error after_failure(std::size_t position) {
    if (std::exchange(roster_[position].informed, true))
      return make_error(errc::stale, failed_before_text(where()));
    return *failure_;
  }

  void accept(std::size_t position, In& message, target to) {
    messages_[position].message = std::move(message);
    arrive(position, std::move(to), {});
  }

  /// @param waited how long the participant has waited for its own.
  void arrive(std::size_t position, target to, caf::timespan waited) {
    targets_[position] = std::move(to);
    roster_[position].arrived = true;
    if (++arrived_ == 1 || waited.count() > 0) {
      auto begin = this->clock().now() - waited;
      started_ = arrived_ == 1 ? begin : std::min(started_, begin);
    }
    complete_if_ready();
    // A timer may run that rings too late for somebody who has waited long.
    if (arrived_ != 0 && (!armed_ || waited > deadline_ / 16))
      arm(limit() - waited);
  }

  void complete_if_ready() {
    if (completed_ || failure_ || arrived_ == 0 || arrived_ != roster_.size()
        || !roster_.is_full())
      return;
    completed_ = true;
    try {
      complete(gather());
    } catch (const error& x) {
      fail(make_error(x.code(), where() + ": " + x.what()));
    } catch (const std::exception& x) {
      fail(make_error(errc::callback_failed,
                      where() + ": the callback threw: " + x.what()));
    } catch (...) {
      fail(make_error(errc::callback_failed, where() + ": the callback threw"));
    }
  }

  /// The round's messages and, in the place of a relay's, its parts.
  std::span<identified<In>> gather() {
    if (below_.empty())
      return messages_;
    gathered_.clear();
    for (std::size_t i = 0; i < roster_.size(); ++i) {
      auto parts = below_.find(roster_[i].identifier);
      if (parts == below_.end())
        gathered_.push_back(std::move(messages_[i]));
      else
        std::ranges::move(parts->second, std::back_inserter(gathered_));
    }
    return gathered_;
  }

  void clear_round() {
    arrived_ = 0;
    completed_ = false;
    patience_.reset();
    below_.clear();
    gathered_.clear();
  }

  // -- failure ----------------------------------------------------------------

  void give_up(const round_tag& tag, const std::string& why) {
    auto position = roster_.find(tag.identifier);
    // The owner has no ticket, and no round ends without it.
    auto stale = tag.identifier != 0 && tag.generation != generation_;
    if (!position || !is_from(*position, this->current_sender().get())
        || failure_ || stale)
      return;
    std::ignore = blame(*position, errc::participant_failed,
                        gave_up_text(where(), roster_[*position], why));
    complete_if_ready();
  }

  void arm(caf::timespan delay) {
    armed_ = true;
    spawn_deadline_watch(this->system(), this->address(), delay);
  }

  void check_deadline() {
    armed_ = false;
    auto now = this->clock().now();
    if (patience_)
      return now < *patience_ ? arm(*patience_ - now) : expire();
    if (arrived_ == 0)
      return;
    auto left = started_ + limit() - now;
    if (left.count() > 0)
      arm(left);
    else if (completed_)
      on_overdue();
    else if (!ask_late_relays(grace_of(deadline_)))
      expire();
  }

  std::vector<identified<In>> messages_;
  std::vector<target> targets_;
  std::size_t arrived_ = 0;
  /// What relays sent, by their first identifier.
  std::map<std::int64_t, std::vector<identified<In>>> below_;
  std::vector<identified<In>> gathered_;

  std::map<std::int64_t, caf::error> expelled_;
  std::set<caf::actor_addr> watched_;

  bool armed_ = false;
  /// Until when relays that are late may say whom they wait for.
  std::optional<time_point> patience_;
};

} // namespace syncnorm::detail
