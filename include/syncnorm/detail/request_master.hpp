#pragma once

#include "syncnorm/detail/answer_if_lost.hpp"

#include <chrono>
#include <cstdint>
#include <utility>

namespace syncnorm::detail {

/// How long a registration may take, unless somebody says otherwise.
inline constexpr caf::timespan registration_time = std::chrono::minutes{1};

/// Asks a master on behalf of the replica with that identifier; the master owes
/// an answer by its own deadline. If it has exited, or its node is lost, the
/// answer is `master_down`; if it is on another node, CAF's `request_timeout`
/// once `timeout` is over.
template <class Self, class Master, class... Ts>
auto request_master(Self&& self, caf::timespan timeout, const Master& master,
                    std::int64_t identifier, Ts&&... xs) {
  // A copy of the handle would touch a count that all workers share.
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
