#pragma once

#include "syncnorm/actors.hpp"
#include "syncnorm/detail/deadline_watch.hpp"
#include "syncnorm/detail/match_replies.hpp"
#include "syncnorm/detail/reply_target.hpp"
#include "syncnorm/detail/roster.hpp"
#include "syncnorm/detail/round_monitor.hpp"
#include "syncnorm/detail/round_text.hpp"
#include "syncnorm/sync_options.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace syncnorm::detail {

/// The master actor: collects one message from every participant, calls the
/// callback, answers every participant. Three vectors run in parallel, ordered
/// by identifier with the master first: who takes part, what they sent, and
/// where their answer goes.
template <class In, class Out>
class sync_master_impl : public sync_master_actor<In, Out>::base {
public:
  using super = typename sync_master_actor<In, Out>::base;
  using typename super::behavior_type;

  /// @param options with nothing left open: `resolve` has been applied.
  sync_master_impl(caf::actor_config& config, sync_options options,
                   sync_callback<In, Out> callback)
      : super{config},
        options_{std::move(options)},
        deadline_{options_.deadline.value()},
        layer_{layer_hash(options_.layer)},
        callback_{std::move(callback)},
        monitor_{this->system(), options_.layer},
        messages_(1),
        targets_(1) {}

  const char* name() const override {
    return "syncnorm.master";
  }

  void on_exit() override {
    fail(errc::master_down, where() + ": the master has exited");
    monitor_.ended(where());
  }

  behavior_type make_behavior() override {
    return {
        [this](register_slave_atom, std::int64_t id) { return enlist(id); },
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
        [this](nr_slaves_atom) -> std::uint64_t { return roster_.size() - 1; },
        [this](get_metrics_atom) { return monitor_.metrics(); },
        [this](give_up_atom, const round_tag& tag, const std::string& why) {
          give_up(tag, why);
        },
        [this](check_deadline_atom) { check_deadline(); },
    };
  }

private:
  using target = reply_target<Out>;
  /// Who sent a message. Nothing for threads: they send through their slot,
  /// which no other node can make.
  using origin_type = std::optional<const caf::actor_control_block*>;

  /// From here on the promise holds the sender: `current_sender` is empty.
  auto promise_reply() {
    return this->template make_response_promise<Out>();
  }

  [[nodiscard]] std::string where() const {
    return where_text(options_.layer, round_);
  }

  // -- membership -------------------------------------------------------------

  caf::result<slave_ticket> enlist(std::int64_t identifier) {
    auto origin = caf::actor_cast<caf::actor>(this->current_sender());
    if (!origin)
      return make_error(errc::unregistered,
                        where() + ": only an actor can register");
    if (has_run_ || failure_)
      begin_generation();
    auto added = roster_.add(identifier, origin.address(), where());
    if (!added)
      return std::move(added.error());
    auto at = static_cast<std::ptrdiff_t>(*added);
    messages_.insert(messages_.begin() + at, identified<In>{identifier, {}});
    targets_.insert(targets_.begin() + at, target{});
    watch(origin);
    monitor_.registered(where(), identifier, generation_, roster_.size() - 1);
    return slave_ticket{round_tag{layer_, generation_, round_, identifier},
                        deadline_};
  }

  void begin_generation() {
    fail(errc::stale, where() + ": a new generation began in its middle");
    ++generation_;
    round_ = 1;
    has_run_ = false;
    failure_.reset();
    expelled_.clear();
    roster_.clear();
    messages_.assign(1, {});
    targets_.clear();
    targets_.resize(1);
    monitor_.began(generation_);
  }

  void watch(const caf::actor& participant) {
    if (watched_.insert(participant.address()).second)
      detail::monitor(
          this, participant,
          [this](const caf::actor_addr& who, const caf::error& reason) {
            on_down(who, reason);
          });
  }

  void adopt_owner() {
    auto origin = caf::actor_cast<caf::actor>(this->current_sender());
    if (!origin || roster_[0].address == origin.address())
      return;
    roster_[0].address = origin.address();
    watch(origin);
  }

  void on_down(const caf::actor_addr& who, const caf::error& reason) {
    watched_.erase(who);
    for (std::size_t i = roster_.size(); i-- > 0 && !failure_;)
      if (roster_[i].address == who)
        std::ignore = blame(i, errc::participant_down,
                            down_text(where(), roster_[i].identifier, reason));
    complete_if_ready();
  }

  /// Ends the part of the participant at fault: by the policy, the round fails
  /// for all, or goes on without this one. Returns the error.
  caf::error blame(std::size_t position, errc code, std::string text) {
    if (options_.policy == failure_policy::fail_round || position == 0) {
      fail(code, std::move(text));
      return *failure_;
    }
    auto reason = make_error(code, std::move(text));
    expel(position, reason);
    return reason;
  }

  void expel(std::size_t position, const caf::error& reason) {
    auto at = static_cast<std::ptrdiff_t>(position);
    if (roster_[position].arrived) {
      targets_[position].deliver(reason);
      --arrived_;
    }
    monitor_.failed(reason);
    expelled_[roster_[position].identifier] = reason;
    roster_.erase(position);
    messages_.erase(messages_.begin() + at);
    targets_.erase(targets_.begin() + at);
  }

  // -- a round ----------------------------------------------------------------

  void contribute(const round_tag& tag, In& message, target to,
                  origin_type origin) {
    auto position = roster_.find(tag.identifier);
    if (auto refusal = refuse(tag, position, origin)) {
      to.deliver(std::move(*refusal));
      complete_if_ready();
    } else {
      accept(*position, message, std::move(to));
    }
  }

  void lead(In& message, target to) {
    if (failure_)
      to.deliver(after_failure(0));
    else if (roster_[0].arrived)
      to.deliver(blame(0, errc::duplicate_message,
                       where() + ": the master sent two messages"));
    else
      accept(0, message, std::move(to));
  }

  /// Returns why a slave's message cannot be taken, having blamed its sender
  /// where it is at fault.
  std::optional<caf::error> refuse(const round_tag& tag,
                                   std::optional<std::size_t> position,
                                   origin_type origin) {
    if (tag.layer == layer_ && tag.generation != generation_)
      return make_error(errc::stale, stale_text(where(), tag.identifier,
                                                tag.generation, generation_));
    if (!position || !is_from(*position, origin))
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
    targets_[position] = std::move(to);
    roster_[position].arrived = true;
    if (++arrived_ == 1)
      started_ = this->clock().now();
    complete_if_ready();
    if (arrived_ != 0 && !armed_)
      arm(deadline_);
  }

  void complete_if_ready() {
    if (arrived_ != roster_.size() || failure_)
      return;
    std::vector<identified<Out>> replies;
    try {
      replies = callback_(messages_);
    } catch (const error& x) {
      return fail(x.code(), where() + ": " + x.what());
    } catch (const std::exception& x) {
      return fail(errc::callback_failed,
                  where() + ": the callback threw: " + x.what());
    } catch (...) {
      return fail(errc::callback_failed, where() + ": the callback threw");
    }
    if (auto mismatch = match_replies(replies, roster_))
      return fail(errc::invalid_reply,
                  where() + ": the callback made " + *mismatch);
    deliver(replies);
  }

  void deliver(std::vector<identified<Out>>& replies) {
    monitor_.completed(this->clock().now() - started_);
    for (std::size_t i = 0; i < replies.size(); ++i) {
      targets_[i].deliver(std::move(replies[i].message));
      messages_[i] = {roster_[i].identifier, {}};
      roster_[i].arrived = false;
    }
    arrived_ = 0;
    has_run_ = true;
    ++round_;
  }

  // -- failure ----------------------------------------------------------------

  /// Ends the round with one error for everybody who has sent a message. Those
  /// who have not get it when they do.
  void fail(errc code, std::string text) {
    // Between two rounds these end nothing that has begun.
    auto between =
        arrived_ == 0 && (code == errc::stale || code == errc::master_down);
    failure_ = make_error(code, std::move(text));
    if (!between)
      monitor_.failed(*failure_);
    for (std::size_t i = 0; i < roster_.size(); ++i) {
      auto arrived = std::exchange(roster_[i].arrived, false);
      roster_[i].informed = arrived;
      if (arrived)
        targets_[i].deliver(*failure_);
      messages_[i].message = {};
    }
    arrived_ = 0;
  }

  void give_up(const round_tag& tag, const std::string& why) {
    auto position = roster_.find(tag.identifier);
    // The owner has no ticket, and no round ends without it.
    auto stale = tag.identifier != 0 && tag.generation != generation_;
    if (!position || !is_from(*position, this->current_sender().get())
        || failure_ || stale)
      return;
    std::ignore = blame(*position, errc::participant_failed,
                        gave_up_text(where(), tag.identifier, why));
    complete_if_ready();
  }

  void arm(caf::timespan delay) {
    armed_ = true;
    spawn_deadline_watch(this->system(), this->address(), delay);
  }

  void check_deadline() {
    armed_ = false;
    if (arrived_ == 0)
      return;
    auto waited = this->clock().now() - started_;
    if (waited < deadline_)
      arm(deadline_ - waited);
    else
      expire();
  }

  void expire() {
    auto text = late_text(where(), deadline_, roster_);
    if (!roster_[0].arrived)
      return fail(errc::deadline_exceeded, std::move(text));
    for (std::size_t i = roster_.size(); i-- > 0 && !failure_;)
      if (!roster_[i].arrived)
        std::ignore = blame(i, errc::deadline_exceeded, text);
    complete_if_ready();
  }

  const sync_options options_;
  const caf::timespan deadline_;
  const std::uint64_t layer_;
  const sync_callback<In, Out> callback_;
  round_monitor monitor_;

  roster roster_;
  std::vector<identified<In>> messages_;
  std::vector<target> targets_;
  std::size_t arrived_ = 0;

  std::uint64_t generation_ = 1;
  std::uint64_t round_ = 1;
  bool has_run_ = false;
  /// Set from a round's failure to the next generation.
  std::optional<caf::error> failure_;
  std::map<std::int64_t, caf::error> expelled_;
  std::set<caf::actor_addr> watched_;

  caf::actor_clock::time_point started_;
  bool armed_ = false;
};

} // namespace syncnorm::detail
