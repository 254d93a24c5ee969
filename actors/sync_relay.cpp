#include "syncnorm/sync_relay.hpp"

#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace syncnorm {

std::vector<planned_relay> plan_relays(std::int64_t replicas,
                                       std::int64_t fan_in) {
  if (replicas < 1 || fan_in < 2)
    throw error{errc::invalid_argument,
                fmt::format("plan_relays: expected 1 replica or more and a "
                            "fan-in of 2 or more, got {} and {}",
                            replicas, fan_in)};
  // A power of two makes each relay a node of the merge tree.
  auto step = std::int64_t(std::bit_floor(std::uint64_t(fan_in)));
  auto block = step;
  while ((replicas - 1) / block + 1 > fan_in)
    block *= step;
  std::vector<planned_relay> plan;
  std::size_t above = 0;
  for (; replicas > fan_in && block >= step; block /= step) {
    auto begin = plan.size();
    for (std::int64_t at = 0; at < replicas; at += block) {
      auto first = std::max<std::int64_t>(at, 1);
      auto end = std::min(at + block, replicas);
      if (first == end)
        continue;
      std::optional<std::size_t> parent;
      if (begin != 0)
        parent = above + std::size_t(at / (block * step));
      plan.push_back({{first, end - first}, parent});
    }
    above = begin;
  }
  return plan;
}

namespace detail {

void check_relay(const std::string& layer, replica_range range, bool has_parent,
                 bool has_merge) {
  sync_options{.layer = layer}.validate();
  if (!has_parent)
    throw error{errc::invalid_argument,
                fmt::format("spawn_sync_relay of layer {}: the parent's handle "
                            "is null",
                            layer)};
  if (!has_merge)
    throw error{errc::invalid_argument,
                fmt::format("spawn_sync_relay of layer {}: the function is "
                            "empty",
                            layer)};
  if (range.first < 1 || range.count < 1
      || range.count > std::numeric_limits<std::int64_t>::max() - range.first)
    throw error{errc::invalid_argument,
                fmt::format("spawn_sync_relay of layer {}: expected 1 replica "
                            "or more from identifier 1 on, up to 2^63 - 2, got "
                            "{} from {} on",
                            layer, range.count, range.first)};
}

} // namespace detail

} // namespace syncnorm
