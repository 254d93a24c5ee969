#pragma once

#include "syncnorm/detail/round_keeper.hpp"

// Who takes part in the rounds of a `round_keeper`, and whose messages it
// refuses.

namespace syncnorm::detail {

template <class In, class Out>
caf::result<slave_ticket> round_keeper<In, Out>::enlist(participant x) {
  auto origin = caf::actor_cast<caf::actor>(this->current_sender());
  if (!origin)
    return make_error(errc::unregistered,
                      where() + ": only an actor can register");
  if (auto refusal = x.is_relay ? refuse_relay() : std::nullopt)
    return std::move(*refusal);
  if (members().find(x.identifier))
    on_contest();
  // An actor that cannot take part ends no generation for those who can.
  if (auto refusal = members().refuse(x, where()))
    return std::move(*refusal);
  if (has_run_ || failure_)
    begin_generation();
  x.address = origin.address();
  auto added = seats_.add(x, where());
  if (!added)
    return std::move(added.error());
  watch_actor(origin);
  monitor_.registered(where(), x.identifier, generation_, nr_slaves());
  auto tag = tag_of(*added);
  // The current round waits for its answer, without the new participant.
  if (completed_)
    ++tag.round;
  return welcome(tag);
}

template <class In, class Out>
void round_keeper<In, Out>::begin_generation() {
  fail(make_error(errc::stale,
                  where() + ": a new generation began in its middle"),
       fault::elsewhere);
  ++generation_;
  round_ = 1;
  has_run_ = false;
  failure_.reset();
  is_untold_ = false;
  expelled_.clear();
  seats_.clear();
  on_new_generation();
  monitor_.began(generation_);
}

template <class In, class Out>
void round_keeper<In, Out>::adopt_owner() {
  const auto& sender = this->current_sender();
  if (!sender || !members().find(0) || is_from(0, sender.get()))
    return;
  auto owner = caf::actor_cast<caf::actor>(sender);
  seats_[0].address = owner.address();
  watch_actor(owner);
}

template <class In, class Out>
void round_keeper<In, Out>::forget_owner() {
  if (members().find(0) && seats_[0].address)
    seats_[0].address = caf::actor_addr{};
}

template <class In, class Out>
std::uint64_t round_keeper<In, Out>::nr_slaves() const {
  // After a failure nobody is a slave until somebody registers again.
  if (failure_)
    return 0;
  return static_cast<std::uint64_t>(members().replicas())
         - (members().find(0) ? 1 : 0);
}

template <class In, class Out>
std::uint64_t round_keeper<In, Out>::nr_participants() const {
  if (failure_)
    return members().find(0) ? 1 : 0;
  return seats_.size();
}

template <class In, class Out>
sync_metrics round_keeper<In, Out>::count() const {
  auto result = monitor_.metrics();
  result.participants = nr_participants();
  return result;
}

template <class In, class Out>
void round_keeper<In, Out>::watch_actor(const caf::actor& participant) {
  auto [place, is_new] = watched_.try_emplace(participant.address());
  if (is_new)
    place->second = detail::monitor(
        this, participant,
        [this](const caf::actor_addr& who, const caf::error& reason) {
          on_down(who, reason);
        });
}

template <class In, class Out>
template <class... Ts>
void round_keeper<In, Out>::tell(std::size_t position, const Ts&... xs) {
  // An actor that ends because nobody holds its handle any more must not become
  // a sender again. Relays monitor it.
  if (exiting_)
    return;
  using handle = sync_master_actor<In, Out>;
  auto strong =
      caf::actor_cast<caf::strong_actor_ptr>(seats_[position].address);
  if (strong)
    detail::send(this, caf::actor_cast<handle>(strong), xs...);
}

template <class In, class Out>
std::optional<caf::error>
round_keeper<In, Out>::refuse(const round_tag& tag,
                              std::optional<std::size_t> position,
                              origin_type origin, bool is_relay) {
  if (tag.layer == layer_ && tag.generation != generation_)
    return make_error(errc::stale, stale_text(where(), tag.identifier,
                                              tag.generation, generation_));
  // The owner leads with another kind of message.
  if (!position || tag.identifier == 0 || !is_from(*position, origin)
      || seats_[*position].is_relay != is_relay)
    return not_a_member(tag.identifier);
  if (failure_)
    return after_failure(*position);
  if (!has_welcomed())
    return make_error(errc::unregistered,
                      no_ticket_text(where(), tag.identifier));
  if (tag.layer != layer_)
    return blame_sender(*position, errc::wrong_layer,
                        wrong_layer_text(where(), tag.identifier));
  // A pipe counts its messages: its second one in a round is for the next.
  auto is_next = tag.round == round_ || tag.round == round_ + 1;
  auto has_sent = seats_[*position].arrived || early_.contains(tag.identifier);
  if (has_sent && is_next)
    return blame_sender(*position, errc::duplicate_message,
                        twice_text(where(), tag.identifier));
  if (tag.round != round_)
    return blame_sender(*position, errc::wrong_round,
                        wrong_round_text(where(), tag.identifier, tag.round));
  return std::nullopt;
}

template <class In, class Out>
bool round_keeper<In, Out>::is_from(std::size_t position,
                                    origin_type origin) const {
  return !origin
         || (*origin != nullptr
             && caf::actor_cast<caf::actor_control_block*>(
                    seats_[position].address)
                    == *origin);
}

template <class In, class Out>
caf::error round_keeper<In, Out>::not_a_member(std::int64_t identifier) const {
  auto i = expelled_.find(identifier);
  return i != expelled_.end()
             ? i->second
             : make_error(errc::unregistered,
                          unregistered_text(where(), identifier));
}

} // namespace syncnorm::detail
