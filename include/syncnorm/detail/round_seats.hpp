#pragma once

#include "syncnorm/detail/reply_target.hpp"
#include "syncnorm/detail/roster.hpp"
#include "syncnorm/sync_callback.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm::detail {

/// The table of one round: who takes part, what they have sent, and where their
/// answer goes. Three vectors run in parallel, ordered by identifier.
template <class In, class Out>
class round_seats {
public:
  using target = reply_target<Out>;
  /// What a relay sends: one message for each node of the merge tree.
  using parts = std::vector<identified<In>>;

  explicit round_seats(roster members) : roster_{std::move(members)} {
    clear();
  }

  // -- who takes part ---------------------------------------------------------

  [[nodiscard]] const roster& members() const noexcept {
    return roster_;
  }

  [[nodiscard]] std::size_t size() const noexcept {
    return roster_.size();
  }

  participant& operator[](std::size_t position) {
    return roster_[position];
  }

  const participant& operator[](std::size_t position) const {
    return roster_[position];
  }

  /// As `roster::add`.
  caf::expected<std::size_t> add(const participant& x,
                                 const std::string& where) {
    auto added = roster_.add(x, where);
    if (!added)
      return added;
    auto at = static_cast<std::ptrdiff_t>(*added);
    messages_.insert(messages_.begin() + at, identified<In>{x.identifier, {}});
    targets_.insert(targets_.begin() + at, target{});
    return added;
  }

  /// If the participant has sent a message, it must have been answered.
  void erase(std::size_t position) {
    auto at = static_cast<std::ptrdiff_t>(position);
    below_.erase(roster_[position].identifier);
    roster_.erase(position);
    messages_.erase(messages_.begin() + at);
    targets_.erase(targets_.begin() + at);
  }

  /// Forgets everybody but the owner.
  void clear() {
    roster_.clear();
    messages_.assign(roster_.size(), {});
    targets_.clear();
    targets_.resize(roster_.size());
  }

  /// As `roster::close`.
  void close() noexcept {
    roster_.close();
  }

  // -- what they have sent ----------------------------------------------------

  /// How many have sent their message.
  [[nodiscard]] std::size_t arrived() const noexcept {
    return arrived_;
  }

  [[nodiscard]] bool all_arrived() const noexcept {
    return arrived_ != 0 && arrived_ == roster_.size() && roster_.is_full();
  }

  void put(std::size_t position, In& message) {
    messages_[position].message = std::move(message);
  }

  void put(std::size_t position, parts values) {
    below_[roster_[position].identifier] = std::move(values);
  }

  /// The participant's message has arrived; the answer will go to `to`.
  void arrive(std::size_t position, target&& to) {
    targets_[position] = std::move(to);
    roster_[position].arrived = true;
    ++arrived_;
  }

  /// The round's messages and, in place of a relay's, its parts.
  std::span<identified<In>> gather() {
    if (below_.empty())
      return messages_;
    gathered_.clear();
    for (std::size_t i = 0; i < roster_.size(); ++i) {
      auto some = below_.find(roster_[i].identifier);
      if (some == below_.end())
        gathered_.push_back(std::move(messages_[i]));
      else
        std::ranges::move(some->second, std::back_inserter(gathered_));
    }
    return gathered_;
  }

  // -- where their answer goes ------------------------------------------------

  /// Answers the participant at `position`, and drops its message.
  template <class Result>
  void answer(std::size_t position, Result&& result) {
    targets_[position].deliver(std::forward<Result>(result));
    messages_[position] = {roster_[position].identifier, {}};
    roster_[position].arrived = false;
    --arrived_;
  }

  /// Everybody has been answered: drops what is left of the messages.
  void end_round() {
    below_.clear();
    gathered_.clear();
  }

private:
  roster roster_;
  std::vector<identified<In>> messages_;
  std::vector<target> targets_;
  std::size_t arrived_ = 0;
  /// What relays sent, by their first identifier.
  std::map<std::int64_t, parts> below_;
  parts gathered_;
};

} // namespace syncnorm::detail
