#include "syncnorm/merge_tree.hpp"

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

} // namespace syncnorm::detail
