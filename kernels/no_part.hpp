#pragma once

#include <algorithm>
#include <span>

namespace syncnorm {

/// What stands in for a null one of `parts` in their sum: -0 changes nothing,
/// not even 0's sign. But the sum of no part at all is 0.
template <class Real>
[[nodiscard]] Real no_part(std::span<const void* const> parts) {
  auto some = std::ranges::any_of(
      parts, [](const void* part) { return part != nullptr; });
  return some ? Real(-0.0) : Real(0);
}

} // namespace syncnorm
