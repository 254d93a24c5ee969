#pragma once

#include "syncnorm/detail/caf_compat.hpp"
#include "syncnorm/detail/is_distant.hpp"

#include <utility>

namespace syncnorm::detail {

/// Asks a master, which owes an answer by its own deadline. One on another node
/// may be lost, and nobody tells: then it is CAF's `request_timeout` once
/// `patience` is over.
template <class Self, class Master, class... Ts>
auto request_master(Self&& self, caf::timespan patience, const Master& master,
                    Ts&&... xs) {
  if (is_distant(master))
    return request_within(self, patience, master, std::forward<Ts>(xs)...);
  return request(self, master, std::forward<Ts>(xs)...);
}

} // namespace syncnorm::detail
