#pragma once

#include "syncnorm/detail/caf/line.hpp"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <type_traits>
#include <utility>

#if !SYNCNORM_CAF_LEGACY
#include <caf/anon_mail.hpp>
#endif

namespace syncnorm::detail {

// `self` is a pointer to an actor or a `caf::scoped_actor`. Call these
// functions qualified: CAF's own functions of the same name are found by
// argument-dependent lookup.

template <class Self, class Handle, class... Ts>
void send(Self&& self, const Handle& to, Ts&&... xs) {
#if SYNCNORM_CAF_LEGACY
  self->send(to, std::forward<Ts>(xs)...);
#else
  self->mail(std::forward<Ts>(xs)...).send(to);
#endif
}

template <class Handle, class... Ts>
void anon_send(const Handle& to, Ts&&... xs) {
#if SYNCNORM_CAF_LEGACY
  caf::anon_send(to, std::forward<Ts>(xs)...);
#else
  caf::anon_mail(std::forward<Ts>(xs)...).send(to);
#endif
}

/// A message as it lies in a mailbox; on 0.17 also the actors that it must
/// still pass, here none.
template <class... Ts>
caf::mailbox_element_ptr make_element(caf::strong_actor_ptr sender,
                                      caf::message_id id, Ts&&... xs) {
#if SYNCNORM_CAF_LEGACY
  return caf::make_mailbox_element(std::move(sender), id, {},
                                   std::forward<Ts>(xs)...);
#else
  return caf::make_mailbox_element(std::move(sender), id,
                                   std::forward<Ts>(xs)...);
#endif
}

/// Sends from an ordinary thread in the name of an actor. CAF 1.x offers this
/// only internally.
template <class Handle, class... Ts>
void send_as(const caf::actor& from, const Handle& to, Ts&&... xs) {
  auto* receiver = caf::actor_cast<caf::abstract_actor*>(to);
  receiver->enqueue(make_element(caf::actor_cast<caf::strong_actor_ptr>(from),
                                 caf::make_message_id(),
                                 std::forward<Ts>(xs)...),
                    nullptr);
}

template <class Self, class Handle, class... Ts>
void delayed_send(Self&& self, const Handle& to, caf::timespan delay,
                  Ts&&... xs) {
#if SYNCNORM_CAF_LEGACY
  self->delayed_send(to, delay, std::forward<Ts>(xs)...);
#else
  self->mail(std::forward<Ts>(xs)...).delay(delay).send(to);
#endif
}

/// Requests without a timer of CAF's: the master owes an answer by its own
/// deadline.
template <class Self, class Handle, class... Ts>
auto request(Self&& self, const Handle& to, Ts&&... xs) {
#if SYNCNORM_CAF_LEGACY
  return self->request(to, caf::infinite, std::forward<Ts>(xs)...);
#else
  return self->mail(std::forward<Ts>(xs)...).request(to, caf::infinite);
#endif
}

/// Answers a request that is answered without a value.
inline void acknowledge(caf::typed_response_promise<void>& promise) {
#if SYNCNORM_CAF_LEGACY
  static_cast<caf::response_promise&>(promise).deliver(caf::unit);
#else
  promise.deliver();
#endif
}

/// Answers a request that `self` has promised to answer. A value is put
/// directly into the mailbox, where CAF 0.17 would also allocate a message.
template <class T>
void deliver([[maybe_unused]] caf::local_actor& self,
             caf::response_promise& promise, T&& x) {
#if SYNCNORM_CAF_LEGACY
  using type = std::decay_t<T>;
  constexpr auto is_value =
      !std::is_same_v<type, caf::error> && !std::is_same_v<type, caf::unit_t>;
  if constexpr (is_value) {
    if (promise.source() && promise.stages().empty()) {
      auto answered = std::exchange(promise, caf::response_promise{});
      answered.source()->enqueue(make_element(self.ctrl(),
                                              answered.id().response_id(),
                                              std::forward<T>(x)),
                                 self.context());
      return;
    }
  }
#endif
  promise.deliver(std::forward<T>(x));
}

/// The return value of a handler that leaves the answer to `to`.
template <class Self, class Handle, class... Ts>
auto delegate(Self&& self, const Handle& to, Ts&&... xs) {
#if SYNCNORM_CAF_LEGACY
  return self->delegate(to, std::forward<Ts>(xs)...);
#else
  return self->mail(std::forward<Ts>(xs)...).delegate(to);
#endif
}

/// The longest time that a request may take: CAF adds it to the time of day, in
/// nanoseconds, and the sum must not overflow.
inline constexpr caf::timespan longest_wait = std::chrono::hours{24 * 365};

/// Requests that fail with `caf::sec::request_timeout` when the time is over.
template <class Self, class Handle, class... Ts>
auto request_within(Self&& self, caf::timespan timeout, const Handle& to,
                    Ts&&... xs) {
  timeout = std::min(timeout, longest_wait);
#if SYNCNORM_CAF_LEGACY
  return self->request(to, timeout, std::forward<Ts>(xs)...);
#else
  return self->mail(std::forward<Ts>(xs)...).request(to, timeout);
#endif
}

/// The answers that an actor waits for, which CAF shows only to derived
/// classes.
struct pending_answers : caf::scheduled_actor {
  static bool contain(const caf::scheduled_actor& self, caf::message_id id) {
    const auto& any = self.*&pending_answers::multiplexed_responses_;
    const auto& next = self.*&pending_answers::awaited_responses_;
    return any.find(id) != any.end()
           || std::any_of(next.begin(), next.end(),
                          [id](const auto& x) { return std::get<0>(x) == id; });
  }
};

/// Whether `self` may wait for the answer with that id; for a blocking actor,
/// nobody knows.
template <class Self>
bool may_wait_for([[maybe_unused]] Self&& self,
                  [[maybe_unused]] caf::message_id answer) {
  using actor_type = std::remove_reference_t<decltype(*self)>;
  if constexpr (std::is_base_of_v<caf::scheduled_actor, actor_type>)
    return pending_answers::contain(*self, answer);
  else
    return true;
}

/// Ends the timer of a request whose answer, with that id, has come; CAF 0.17
/// keeps the timer until it rings. Does nothing if the actor waits for the
/// answer, or is a blocking one, which may.
template <class Self>
void end_timer([[maybe_unused]] Self&& self,
               [[maybe_unused]] caf::message_id answer) {
#if SYNCNORM_CAF_LEGACY
  if (!may_wait_for(self, answer))
    self->clock().cancel_request_timeout(&*self, answer);
#endif
}

/// The id of the answer to the request that `self` sends next.
template <class Self>
caf::message_id next_answer(Self&& self) {
  auto request = self->new_request_id(caf::message_priority::normal);
  ++request;
  return request.response_id();
}

/// Answers a request in place of its receiver.
inline void answer(const caf::strong_actor_ptr& asker, caf::message_id id,
                   caf::error reason) {
  asker->enqueue(make_element(nullptr, id, std::move(reason)), nullptr);
}

} // namespace syncnorm::detail
