#pragma once

#include "syncnorm/detail/roster.hpp"
#include "syncnorm/sync_callback.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace syncnorm::detail {

/// Returns what is wrong with a callback's replies, which are for
/// `identifiers`, in ascending order, for example `"no reply for replica 2"`;
/// nothing if there is one for each of `members`.
[[nodiscard]] std::optional<std::string>
find_mismatch(const std::vector<std::int64_t>& identifiers,
              const roster& members);

/// Brings `replies` into the order of `members`. Returns what is wrong if there
/// is not exactly one for each.
template <class Out>
std::optional<std::string> match_replies(std::vector<identified<Out>>& replies,
                                         const roster& members) {
  auto fits = replies.size() == members.size();
  for (std::size_t i = 0; fits && i < replies.size(); ++i)
    fits = replies[i].identifier == members[i].identifier;
  if (fits)
    return std::nullopt;
  std::ranges::stable_sort(replies, {}, &identified<Out>::identifier);
  std::vector<std::int64_t> identifiers;
  identifiers.reserve(replies.size());
  for (const auto& reply : replies)
    identifiers.push_back(reply.identifier);
  return find_mismatch(identifiers, members);
}

} // namespace syncnorm::detail
