#include "syncnorm/detail/relay_wire.hpp"

#include "syncnorm/merge_tree.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace syncnorm::detail {

std::optional<std::string> find_damage(const participant& relay,
                                       const relay_parts& parts) {
  if (parts.first.empty() || parts.first.size() != parts.values.size())
    return fmt::format("{} parts with {} identifiers", parts.values.size(),
                       parts.first.size());
  auto blocks = tree_blocks(relay.identifier, relay.count);
  auto next = blocks.begin();
  for (auto first : parts.first) {
    next = std::find(next, blocks.end(), first);
    if (next == blocks.end())
      return fmt::format("a part from replica {} on, which is no node of the "
                         "tree in its range, or out of order",
                         first);
    ++next;
  }
  return std::nullopt;
}

} // namespace syncnorm::detail
