#include "syncnorm/merge_tree.hpp"

#include <fmt/format.h>

namespace syncnorm::detail {

std::vector<std::int64_t> tree_blocks(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> result;
  while (count > 0) {
    result.push_back(first);
    auto largest = std::bit_floor(std::uint64_t(count));
    if (first != 0)
      largest = std::min(largest, std::uint64_t(first & -first));
    first += std::int64_t(largest);
    count -= std::int64_t(largest);
  }
  return result;
}

void check_participants(const sync_options& options,
                        std::int64_t participants) {
  auto refuse = [&](const std::string& expected) {
    throw error{errc::invalid_argument,
                fmt::format("spawn_sync_master of layer {}: participants of "
                            "the reduction: expected {}, got {}",
                            options.layer, expected, participants)};
  };
  if (participants < 0)
    refuse("1 or more, or 0 for any number");
  if (participants != 0 && options.participants != 0
      && participants != options.participants)
    refuse(fmt::format("the {} of the options, or 0", options.participants));
}

} // namespace syncnorm::detail
