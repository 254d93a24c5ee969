#pragma once

#include "syncnorm/detail/round_keeper.hpp"

// A round of a `round_keeper`, from its first message to its answer.

namespace syncnorm::detail {

template <class In, class Out>
void round_keeper<In, Out>::contribute(const round_tag& tag, In& message,
                                       target&& to, origin_type origin) {
  if (keep_early(tag, message, to, origin))
    return;
  auto position = members().find(tag.identifier);
  if (auto refusal = refuse(tag, position, origin, false)) {
    to.deliver(std::move(*refusal));
    complete_if_ready();
  } else {
    accept(*position, message, std::move(to));
  }
}

template <class In, class Out>
void round_keeper<In, Out>::contribute_parts(const round_tag& tag,
                                             const relay_parts& parts,
                                             target&& to, origin_type origin) {
  if (keep_early(tag, parts, to, origin))
    return;
  auto position = members().find(tag.identifier);
  if (auto refusal = refuse(tag, position, origin, true)) {
    to.deliver(std::move(*refusal));
    complete_if_ready();
    return;
  }
  auto values = unwrap_parts<In>(seats_[*position], parts);
  if (!values) {
    to.deliver(blame(
        *position, errc::malformed_message,
        damaged_text(where(), seats_[*position], text_of(values.error()))));
    complete_if_ready();
    return;
  }
  seats_.put(*position, std::move(*values));
  arrive(*position, std::move(to),
         std::clamp(parts.waited, caf::timespan{0}, deadline_));
}

template <class In, class Out>
template <class Message>
bool round_keeper<In, Out>::keep_early(const round_tag& tag, Message& message,
                                       target& to, origin_type origin) {
  constexpr auto of_relay = std::is_same_v<Message, const relay_parts>;
  if (!completed_)
    return false;
  auto position = members().find(tag.identifier);
  if (failure_ || tag.layer != layer_ || tag.generation != generation_
      || tag.round != round_ + 1 || !position || tag.identifier == 0
      || early_.contains(tag.identifier) || seats_[*position].arrived
      || seats_[*position].is_relay != of_relay || !is_from(*position, origin))
    return false;
  using kept_type = std::remove_const_t<Message>;
  early_.emplace(tag.identifier,
                 [this, tag, origin,
                  kept = std::make_shared<kept_type>(std::move(message)),
                  later = std::make_shared<target>(std::move(to))] {
                   if constexpr (of_relay)
                     contribute_parts(tag, *kept, std::move(*later), origin);
                   else
                     contribute(tag, *kept, std::move(*later), origin);
                 });
  return true;
}

template <class In, class Out>
void round_keeper<In, Out>::take_early() {
  for (auto& [identifier, take] : std::exchange(early_, {}))
    take();
}

template <class In, class Out>
void round_keeper<In, Out>::lead(In& message, target&& to) {
  // An owner that has had the error, and knows how many it waits for, need not
  // wait until one of them has registered.
  if (failure_ && members().is_counted() && members().find(0)
      && seats_[0].informed)
    begin_generation();
  if (!members().find(0))
    to.deliver(make_error(errc::invalid_argument,
                          where()
                              + ": a relay has no owner; send the "
                                "owner's message to the master"));
  else if (failure_)
    to.deliver(after_failure(0));
  else if (seats_[0].arrived)
    to.deliver(blame(0, errc::duplicate_message,
                     where() + ": the owner sent two messages"));
  else
    accept(0, message, std::move(to));
}

template <class In, class Out>
void round_keeper<In, Out>::accept(std::size_t position, In& message,
                                   target&& to) {
  seats_.put(position, message);
  arrive(position, std::move(to), {});
}

template <class In, class Out>
void round_keeper<In, Out>::arrive(std::size_t position, target&& to,
                                   caf::timespan waited) {
  seats_.arrive(position, std::move(to));
  auto is_first = seats_.arrived() == 1;
  if (is_first || waited.count() > 0) {
    auto begin = this->clock().now() - waited;
    started_ = is_first ? begin : std::min(started_, begin);
  }
  complete_if_ready();
  conclude_if_all_reported();
  // A running timer may ring too late for a participant that has waited long.
  auto due = started_ + limit();
  if (seats_.arrived() != 0 && !patience_
      && needs_timer(rings_, due, deadline_))
    arm(due - this->clock().now());
}

template <class In, class Out>
void round_keeper<In, Out>::complete_if_ready() {
  if (completed_ || failure_ || !seats_.all_arrived())
    return;
  completed_ = true;
  waited_ = this->clock().now() - started_;
  stop_asking();
  try {
    complete(seats_.gather());
  } catch (const error& x) {
    // An error without a code would look like no error at all.
    auto code = x.code() == errc::none ? errc::callback_failed : x.code();
    fail(make_error(code, where() + ": " + x.what()));
  } catch (const std::exception& x) {
    fail(make_error(errc::callback_failed,
                    where() + ": the callback threw: " + x.what()));
  } catch (...) {
    fail(make_error(errc::callback_failed, where() + ": the callback threw"));
  }
  // The timer of a relay that went on without those who were late has rung; now
  // the relay waits for its parent.
  if (completed_ && !rings_)
    arm(started_ + limit() - this->clock().now());
}

template <class In, class Out>
template <class ReplyOf>
void round_keeper<In, Out>::answer(ReplyOf reply_of) {
  monitor_.completed(waited_);
  for (std::size_t i = 0; i < seats_.size(); ++i)
    if (seats_[i].arrived)
      seats_.answer(i, reply_of(i));
  end_round();
  has_run_ = true;
  ++round_;
  take_early();
}

template <class In, class Out>
void round_keeper<In, Out>::end_round() {
  seats_.end_round();
  completed_ = false;
  stop_asking();
  if (!std::exchange(reports_, {}).empty())
    for (std::size_t i = 0; i < seats_.size(); ++i)
      seats_[i].reported = false;
}

} // namespace syncnorm::detail
