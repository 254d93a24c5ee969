#pragma once

#include "syncnorm/merge_tree.hpp"
#include "syncnorm/sync_master.hpp"

#include <span>
#include <utility>
#include <vector>

namespace syncnorm::bench {

/// What every participant sends into a round and gets back: the sums of C
/// channels, 2 * C float32.
inline float_array make_payload(int channels) {
  return float_array{
      std::vector<float>(2 * static_cast<std::size_t>(channels), 1.0F)};
}

/// Gather and scatter, no arithmetic: all get the master's payload.
inline std::vector<identified<float_array>>
scatter(std::span<identified<float_array>> messages) {
  std::vector<identified<float_array>> replies;
  replies.reserve(messages.size());
  for (const auto& x : messages)
    replies.push_back({x.identifier, messages[0].message});
  return replies;
}

/// The sum of the payloads, for a master that may have relays in front of it.
inline float_array add(std::span<identified<float_array>> parts) {
  std::vector<identified<std::span<const float>>> views;
  for (const auto& x : parts)
    views.push_back({x.identifier, x.message.view()});
  std::vector<float> sum(parts[0].message.size());
  add_tree(std::move(views), std::span{sum});
  return float_array{std::move(sum)};
}

/// All participants get the sum.
inline sync_reduction<float_array, float_array> sum_of_payloads() {
  return {.merge = add, .finish = [](float_array x) { return x; }};
}

} // namespace syncnorm::bench
