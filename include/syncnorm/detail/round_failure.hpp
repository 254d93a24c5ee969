#pragma once

#include "syncnorm/detail/round_keeper.hpp"

// How a round of a `round_keeper` fails: by whom, when its deadline is over,
// and what the participants are told.

namespace syncnorm::detail {

template <class In, class Out>
void round_keeper<In, Out>::fail(caf::error reason, fault from) {
  // Between two rounds these errors interrupt nothing, and do not count as
  // failures.
  auto between = seats_.arrived() == 0
                 && (reason == errc::stale || reason == errc::master_down);
  failure_ = std::move(reason);
  if (!between && !is_untold_)
    monitor_.failed(*failure_);
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    auto arrived = seats_[i].arrived;
    seats_[i].informed = arrived || seats_[i].is_relay;
    if (arrived)
      seats_.answer(i, *failure_);
    else if (seats_[i].is_relay)
      tell(i, round_failed_atom_v, tag_of(i), *failure_);
  }
  end_round();
  on_failed(from);
  take_early();
}

template <class In, class Out>
void round_keeper<In, Out>::fail_as_reported(const caf::error& reason) {
  is_untold_ = may_be_quiet(reason);
  fail(reported_error(reason, errc::master_down), fault::elsewhere);
}

template <class In, class Out>
caf::error round_keeper<In, Out>::blame(std::size_t position, caf::error reason,
                                        bool quietly) {
  if (policy_ == failure_policy::fail_round
      || seats_[position].identifier == 0) {
    if (is_decided_above(reason))
      return reason;
    is_untold_ = quietly;
    fail(std::move(reason));
    return *failure_;
  }
  expel(position, reason, !quietly);
  if (seats_.size() == 0 && members().is_full()) {
    is_untold_ = quietly;
    on_deserted(reason);
  }
  return reason;
}

template <class In, class Out>
caf::error round_keeper<In, Out>::blame_sender(std::size_t position, errc code,
                                               std::string text) {
  auto identifier = seats_[position].identifier;
  auto reason = blame(position, code, std::move(text));
  if (auto still = members().find(identifier); still && failure_)
    seats_[*still].informed = true;
  return reason;
}

template <class In, class Out>
void round_keeper<In, Out>::expel(std::size_t position,
                                  const caf::error& reason, bool counts) {
  if (seats_[position].arrived)
    seats_.answer(position, reason);
  else if (seats_[position].is_relay)
    tell(position, round_failed_atom_v, tag_of(position), reason);
  if (counts)
    monitor_.went_on(reason);
  auto identifier = seats_[position].identifier;
  expelled_[identifier] = reason;
  seats_.erase(position);
  // The next message is the first of a round.
  if (seats_.arrived() == 0)
    stop_asking();
  // The participant's early message is refused now: nobody who registers under
  // the same identifier later may inherit it.
  if (auto early = early_.extract(identifier))
    early.mapped()();
}

template <class In, class Out>
caf::error round_keeper<In, Out>::after_failure(std::size_t position) {
  if (std::exchange(seats_[position].informed, true))
    return make_error(errc::stale, failed_before_text(where(), *failure_));
  if (std::exchange(is_untold_, false))
    monitor_.failed(*failure_);
  return *failure_;
}

// -- by whom ------------------------------------------------------------------

template <class In, class Out>
void round_keeper<In, Out>::give_up(const round_tag& tag,
                                    const std::string& why) {
  auto position = members().find(tag.identifier);
  if (!position)
    return;
  // The owner has no ticket, and no round ends without the owner.
  if (tag.identifier == 0
          ? speaks_for_owner()
          : tag.generation == generation_
                && is_from(*position, this->current_sender().get()))
    give_up_at(*position, why);
}

template <class In, class Out>
void round_keeper<In, Out>::give_up_owner(const std::string& why) {
  if (members().find(0) && !seats_[0].address)
    give_up_at(0, why);
}

template <class In, class Out>
bool round_keeper<In, Out>::speaks_for_owner() {
  const auto& sender = this->current_sender();
  if (seats_[0].address)
    return is_from(0, sender.get());
  // Other nodes have no say.
  return sender && !is_distant(sender);
}

template <class In, class Out>
void round_keeper<In, Out>::give_up_at(std::size_t position,
                                       const std::string& why) {
  if (failure_)
    return;
  std::ignore = blame(position, errc::participant_failed,
                      gave_up_text(where(), seats_[position], why));
  complete_if_ready();
}

template <class In, class Out>
void round_keeper<In, Out>::on_round_failed(const round_tag& tag,
                                            const caf::error& why) {
  auto position = members().find(tag.identifier);
  if (!position || !is_from(*position, this->current_sender().get())
      || !seats_[*position].is_relay || failure_
      || tag.generation != generation_)
    return;
  auto reason = reported_error(why, errc::participant_failed);
  // That round has been answered. The relay is out all the same.
  if (tag.round < round_)
    reason = left_before(where(), seats_[*position], tag.round, reason);
  // With survivors each relay has its own error.
  else if (reason == errc::deadline_exceeded
           && policy_ == failure_policy::fail_round)
    return take_report(*position, reason);
  std::ignore = blame(*position, std::move(reason), may_be_quiet(why));
  complete_if_ready();
}

template <class In, class Out>
void round_keeper<In, Out>::on_down(const caf::actor_addr& who,
                                    const caf::error& reason) {
  watched_.erase(who);
  auto quietly = leaves_quietly(reason);
  for (std::size_t i = seats_.size(); i-- > 0 && !failure_;)
    if (is_same_actor(seats_[i].address, who))
      std::ignore = blame(i,
                          make_error(errc::participant_down,
                                     down_text(where(), seats_[i], reason)),
                          quietly);
  if (members().find(0) && is_same_actor(seats_[0].address, who))
    forget_owner();
  complete_if_ready();
}

// -- when the deadline is over ------------------------------------------------

template <class In, class Out>
void round_keeper<In, Out>::arm(caf::timespan delay) {
  rings_ = this->clock().now() + delay;
  end_deadline_watch(watch_);
  watch_ = spawn_deadline_watch(this->system(), this->address(), delay);
}

template <class In, class Out>
void round_keeper<In, Out>::check_deadline() {
  rings_.reset();
  auto now = this->clock().now();
  if (patience_)
    return now < *patience_ ? arm(*patience_ - now) : conclude();
  if (seats_.arrived() == 0)
    return;
  auto left = started_ + limit() - now;
  if (left.count() > 0)
    arm(left);
  else if (completed_)
    on_overdue();
  else if (!ask_late_relays(grace()))
    conclude();
}

template <class In, class Out>
bool round_keeper<In, Out>::ask_late_relays(caf::timespan grace) {
  auto asked = false;
  for (std::size_t i = 0; i < seats_.size(); ++i)
    if (seats_[i].is_relay && !seats_[i].arrived && !seats_[i].reported) {
      tell(i, report_late_atom_v, tag_of(i), grace);
      asked = true;
    }
  asks_ = asked;
  if (asked)
    be_patient(grace);
  return asked;
}

template <class In, class Out>
void round_keeper<In, Out>::be_patient(caf::timespan delay) {
  patience_ = this->clock().now() + delay;
  arm(delay);
}

template <class In, class Out>
caf::error round_keeper<In, Out>::lateness() const {
  return make_error(errc::deadline_exceeded,
                    late_text(where(), deadline_, members(), reports_));
}

template <class In, class Out>
void round_keeper<In, Out>::take_report(std::size_t position,
                                        const caf::error& reason) {
  if (std::exchange(seats_[position].reported, true))
    return;
  reports_[seats_[position].identifier] = text_of(reason);
  if (asks_)
    conclude_if_all_reported();
  else if (!patience_ && !ask_late_relays(grace()))
    conclude();
}

template <class In, class Out>
void round_keeper<In, Out>::conclude_if_all_reported() {
  auto may_report = [](const participant& x) {
    return x.is_relay && !x.arrived && !x.reported;
  };
  if (asks_ && !reports_.empty() && std::ranges::none_of(members(), may_report))
    conclude();
}

template <class In, class Out>
void round_keeper<In, Out>::conclude() {
  asks_ = false;
  on_late();
}

template <class In, class Out>
void round_keeper<In, Out>::expire() {
  auto reason = lateness();
  auto lost = policy_ == failure_policy::fail_round
              || (members().find(0) && !seats_[0].arrived);
  if (lost)
    return fail(std::move(reason));
  auto all_came = seats_.arrived() == seats_.size();
  for (std::size_t i = seats_.size(); i-- > 0 && !failure_;)
    if (!seats_[i].arrived)
      std::ignore = blame(i, reason);
  // Nobody can be expelled for those who have not registered.
  if (all_came && !members().is_full())
    monitor_.went_on(reason);
  seats_.close();
  complete_if_ready();
}

} // namespace syncnorm::detail
