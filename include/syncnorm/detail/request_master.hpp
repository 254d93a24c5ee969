#pragma once

#include "syncnorm/detail/answer_if_lost.hpp"

#include <chrono>
#include <cstdint>
#include <utility>

namespace syncnorm::detail {

/// How long a registration may take, unless somebody says otherwise.
inline constexpr caf::timespan registration_time = std::chrono::minutes{1};

/// Asks a master for the replica of that identifier, which owes an answer by
/// its own deadline. One that has exited cannot, or whose node is lost: then it
/// is `master_down`. Of one on another node it is CAF's `request_timeout` once
/// `timeout` is over.
template <class Self, class Master, class... Ts>
auto request_master(Self&& self, caf::timespan timeout, const Master& master,
                    std::int64_t identifier, Ts&&... xs) {
  // A copy of the handle would have a count that all workers share.
  if (has_exited(master))
    return request(self, stand_in_for(self, master, identifier),
                   std::forward<Ts>(xs)...);
  auto before = answer_if_lost(self, master, identifier);
  if (!is_distant(master))
    return request(self, master, std::forward<Ts>(xs)...);
  if (before)
    end_timer(self, *before);
  return request_within(self, timeout, master, std::forward<Ts>(xs)...);
}

} // namespace syncnorm::detail
