#include "actors/nn/forward_session.hpp"

#include "actors/nn/participant.hpp"
#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace syncnorm::nn::detail {

void forward_session::begin() {
  is_over_ = std::make_shared<std::atomic<bool>>(false);
  left_.store(0);
  first_failure_.store(-1);
  for (auto& copy : copies_) {
    copy.now.store(state::running);
    copy.failure.clear();
    for (auto& entry : copy.seats)
      for (auto& calls : entry.calls->of_copy)
        calls.store(0);
  }
}

void forward_session::add_seat(const layer_calls_ptr& calls, std::size_t copy,
                               participant* seat) {
  copies_[copy].seats.push_back({calls, seat});
}

void forward_session::forget_seats() noexcept {
  for (auto& copy : copies_)
    copy.seats.clear();
}

void forward_session::require_pass(const layer_calls& calls,
                                   std::size_t copy) const {
  if (copies_[copy].now.load() != state::running
      && calls.last - calls.first > 1)
    throw error{errc::wrong_round,
                fmt::format("layer {}, copy {}: expected a forward call in the "
                            "data-parallel object's own pass, got one outside "
                            "of it, such as a recomputation in backward; "
                            "copies with graphs and threads of their own, of "
                            "synchronize, may have one",
                            calls.layer, copy)};
}

void forward_session::enter(layer_calls& calls, std::size_t copy) {
  auto mine = calls.of_copy[copy].fetch_add(1) + 1;
  for (std::size_t other = 0; other < copies_.size(); ++other) {
    auto now = copies_[other].now.load();
    if (now == state::running || !calls.has(other)
        || calls.of_copy[other].load() >= mine)
      continue;
    throw error{now == state::thrown ? errc::participant_failed
                                     : errc::wrong_round,
                fmt::format("layer {}, call {} of copy {}: {}", calls.layer,
                            mine, copy, why_absent(calls, other))};
  }
}

void forward_session::leave(std::size_t copy,
                            std::optional<std::string> failure) noexcept {
  auto& self = copies_[copy];
  auto next = state::returned;
  if (failure) {
    next = state::thrown;
    self.failure = std::move(*failure);
    std::int64_t nobody = -1;
    first_failure_.compare_exchange_strong(nobody,
                                           static_cast<std::int64_t>(copy));
  }
  self.now.store(next);
  for (auto& entry : self.seats) {
    auto mine = entry.calls->of_copy[copy].load();
    if (std::ranges::any_of(entry.calls->of_copy, [mine](const auto& calls) {
          return calls.load() > mine;
        }))
      entry.seat->give_up(why_absent(*entry.calls, copy));
  }
  if (left_.fetch_add(1) + 1 == copies_.size())
    is_over_->store(true);
}

std::string forward_session::why_absent(const layer_calls& calls,
                                        std::size_t copy) const {
  const auto& entry = copies_[copy];
  if (entry.now.load() == state::thrown)
    return fmt::format("copy {} failed: {}", copy, entry.failure);
  return fmt::format("copy {} ended its forward pass after {} calls of the "
                     "layer",
                     copy, calls.of_copy[copy].load());
}

} // namespace syncnorm::nn::detail
