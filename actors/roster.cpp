#include "syncnorm/detail/roster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace syncnorm::detail {

namespace {

/// Consecutive identifiers are listed as a range from this many on.
constexpr std::int64_t long_run = 8;

/// Lists identifiers and ranges of them, for example "0, 1, 8-15".
class identifier_list {
public:
  void add(std::int64_t first, std::int64_t count) {
    if (count == 0)
      return;
    if (count_ == 0 || first != first_ + count_) {
      flush();
      first_ = first;
    }
    count_ += count;
    total_ += count;
  }

  std::string text() {
    flush();
    if (total_ == 0)
      return "nobody";
    return (total_ == 1 ? "replica " : "replicas ") + text_;
  }

private:
  void flush() {
    if (count_ >= long_run)
      append(fmt::format("{}-{}", first_, first_ + count_ - 1));
    else
      for (std::int64_t i = 0; i < count_; ++i)
        append(fmt::format("{}", first_ + i));
    count_ = 0;
  }

  void append(const std::string& x) {
    text_ += (text_.empty() ? "" : ", ") + x;
  }

  std::int64_t first_ = 0;
  std::int64_t count_ = 0;
  std::int64_t total_ = 0;
  std::string text_;
};

} // namespace

participant participant::slave(std::int64_t identifier) {
  participant x;
  x.identifier = identifier;
  return x;
}

participant participant::relay(std::int64_t first, std::int64_t count) {
  auto x = slave(first);
  x.is_relay = true;
  x.count = count;
  return x;
}

std::string participant::name() const {
  if (is_relay)
    return fmt::format("the relay of replicas {} to {}", identifier,
                       identifier + count - 1);
  return fmt::format("replica {}", identifier);
}

roster::roster(std::int64_t count) : has_owner_{true}, count_{count} {
  clear();
}

roster::roster(std::int64_t first, std::int64_t count)
    : has_owner_{false},
      first_{first},
      count_{count} {}

void roster::clear() {
  participant owner;
  if (has_owner_ && !members_.empty())
    owner.address = members_[0].address;
  members_.assign(has_owner_ ? 1 : 0, owner);
  replicas_ = has_owner_ ? 1 : 0;
  erased_.clear();
  closed_ = false;
}

std::optional<caf::error> roster::refuse(const participant& x,
                                         const std::string& where) const {
  if (x.identifier <= 0 || x.count < 1
      || x.count > std::numeric_limits<std::int64_t>::max() - x.identifier)
    return make_error(
        errc::invalid_identifier,
        x.is_relay
            ? fmt::format("{}: a relay must stand for 1 replica or more from "
                          "identifier 1 on (0 is the owner's), up to "
                          "2^63 - 2, got {} from {} on",
                          where, x.count, x.identifier)
            : fmt::format("{}: a slave's identifier must be 1 or more (0 is "
                          "the owner's), up to 2^63 - 2, got {}",
                          where, x.identifier));
  if (count_ != 0
      && (x.identifier < first_ || x.identifier + x.count > first_ + count_))
    return make_error(
        errc::invalid_identifier,
        fmt::format("{}: this {} replicas {} to {}, not for {}", where,
                    has_owner_ ? "master is for" : "relay stands for", first_,
                    first_ + count_ - 1, x.name()));
  return std::nullopt;
}

caf::expected<std::size_t> roster::add(const participant& x,
                                       const std::string& where) {
  if (auto refusal = refuse(x, where))
    return std::move(*refusal);
  auto i = std::ranges::lower_bound(members_, x.identifier, {},
                                    &participant::identifier);
  const participant* other = nullptr;
  if (i != members_.end() && i->identifier < x.identifier + x.count)
    other = &*i;
  else if (i != members_.begin()
           && std::prev(i)->identifier + std::prev(i)->count > x.identifier)
    other = &*std::prev(i);
  if (other != nullptr)
    return make_error(
        errc::duplicate_identifier,
        other->is_relay || x.is_relay
            ? fmt::format("{}: {} overlaps {}, which is "
                          "registered already",
                          where, x.name(), other->name())
            : fmt::format("{}: {} is registered already", where, x.name()));
  i = members_.insert(i, x);
  replicas_ += x.count;
  bring_back(x);
  return static_cast<std::size_t>(i - members_.begin());
}

std::int64_t roster::erased_count() const noexcept {
  std::int64_t result = 0;
  for (const auto& gone : erased_)
    result += gone.count;
  return result;
}

void roster::bring_back(const participant& x) {
  std::vector<range> left;
  auto keep = [&](std::int64_t first, std::int64_t end) {
    if (first < end)
      left.push_back({first, end - first});
  };
  for (const auto& gone : erased_) {
    auto end = gone.first + gone.count;
    keep(gone.first, std::min(end, x.identifier));
    keep(std::max(gone.first, x.identifier + x.count), end);
  }
  erased_ = std::move(left);
}

void roster::erase(std::size_t position) {
  const auto& gone = members_[position];
  replicas_ -= gone.count;
  if (count_ != 0)
    erased_.push_back({gone.identifier, gone.count});
  members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(position));
}

std::optional<std::size_t> roster::find(std::int64_t identifier) const {
  // Identifiers are usually consecutive.
  if (members_.empty() || identifier < members_[0].identifier)
    return std::nullopt;
  auto guess = static_cast<std::size_t>(identifier - members_[0].identifier);
  if (guess < members_.size() && members_[guess].identifier == identifier)
    return guess;
  auto i = std::ranges::lower_bound(members_, identifier, {},
                                    &participant::identifier);
  if (i == members_.end() || i->identifier != identifier)
    return std::nullopt;
  return static_cast<std::size_t>(i - members_.begin());
}

std::string roster::list(bool arrived) const {
  identifier_list result;
  auto gaps = !arrived && !is_full();
  auto next = first_;
  for (const auto& member : members_) {
    if (gaps)
      result.add(next, member.identifier - next);
    next = member.identifier + member.count;
    if (member.arrived == arrived && !member.reported)
      result.add(member.identifier, member.count);
  }
  if (gaps)
    result.add(next, first_ + count_ - next);
  return result.text();
}

std::optional<std::string> roster::relayed_range() const {
  if (has_owner_)
    return std::nullopt;
  return fmt::format("replicas {} to {}", first_, first_ + count_ - 1);
}

std::string roster::list() const {
  identifier_list result;
  for (const auto& member : members_)
    result.add(member.identifier, member.count);
  return result.text();
}

} // namespace syncnorm::detail
