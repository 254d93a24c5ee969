#include "syncnorm/detail/roster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace syncnorm::detail {

roster::roster() : members_(1) {}

void roster::clear() {
  members_.assign(1, participant{});
}

caf::expected<std::size_t> roster::add(std::int64_t identifier,
                                       const caf::actor_addr& address,
                                       const std::string& where) {
  if (identifier <= 0)
    return make_error(errc::invalid_identifier,
                      fmt::format("{}: a slave's identifier must be 1 or more "
                                  "(0 is the master's own), got {}",
                                  where, identifier));
  auto i = std::ranges::lower_bound(members_, identifier, {},
                                    &participant::identifier);
  if (i != members_.end() && i->identifier == identifier)
    return make_error(
        errc::duplicate_identifier,
        fmt::format("{}: replica {} is registered already", where, identifier));
  i = members_.insert(i, participant{identifier, address});
  return static_cast<std::size_t>(i - members_.begin());
}

void roster::erase(std::size_t position) {
  members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(position));
}

std::optional<std::size_t> roster::find(std::int64_t identifier) const {
  // Identifiers are usually 0, 1, 2, ... without gaps.
  auto guess = static_cast<std::size_t>(identifier);
  if (identifier >= 0 && guess < members_.size()
      && members_[guess].identifier == identifier)
    return guess;
  auto i = std::ranges::lower_bound(members_, identifier, {},
                                    &participant::identifier);
  if (i == members_.end() || i->identifier != identifier)
    return std::nullopt;
  return static_cast<std::size_t>(i - members_.begin());
}

std::string roster::list(bool arrived) const {
  std::vector<std::int64_t> identifiers;
  for (const auto& member : members_)
    if (member.arrived == arrived)
      identifiers.push_back(member.identifier);
  if (identifiers.empty())
    return "nobody";
  return fmt::format("{} {}", identifiers.size() == 1 ? "replica" : "replicas",
                     fmt::join(identifiers, ", "));
}

} // namespace syncnorm::detail
