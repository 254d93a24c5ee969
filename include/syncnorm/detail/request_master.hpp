#pragma once

#include "syncnorm/detail/answer_if_lost.hpp"

#include <chrono>
#include <cstdint>
#include <utility>

namespace syncnorm::detail {

/// How long a registration may take, unless somebody says otherwise.
inline constexpr caf::timespan registration_time = std::chrono::minutes{1};

/// Asks a master for the replica of that identifier, which owes an answer by
/// its own deadline. One on another node may be lost, and cannot: then it is
/// `master_down`, or CAF's `request_timeout` once `patience` is over.
template <class Self, class Master, class... Ts>
auto request_master(Self&& self, caf::timespan patience, const Master& master,
                    std::int64_t identifier, Ts&&... xs) {
  if (!is_distant(master))
    return request(self, master, std::forward<Ts>(xs)...);
  auto before = answer_if_lost(self, master, identifier);
  // Of those who only ask, several requests may be under way.
  if (before && identifier != no_replica)
    end_timer(self, *before);
  return request_within(self, patience, master, std::forward<Ts>(xs)...);
}

} // namespace syncnorm::detail
