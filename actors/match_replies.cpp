#include "syncnorm/detail/match_replies.hpp"

#include <fmt/format.h>

namespace syncnorm::detail {

std::optional<std::string>
find_mismatch(const std::vector<std::int64_t>& identifiers,
              const roster& members) {
  auto twice = std::ranges::adjacent_find(identifiers);
  if (twice != identifiers.end())
    return fmt::format("two replies for replica {}", *twice);
  for (auto identifier : identifiers)
    if (!members.find(identifier))
      return fmt::format("a reply for replica {}, which is not registered",
                         identifier);
  for (const auto& member : members)
    if (!std::ranges::binary_search(identifiers, member.identifier))
      return fmt::format("no reply for replica {}", member.identifier);
  return std::nullopt;
}

} // namespace syncnorm::detail
