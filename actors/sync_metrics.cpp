#include "syncnorm/sync_metrics.hpp"

#include <algorithm>

namespace syncnorm {

std::uint64_t sync_metrics::failed(errc cause) const noexcept {
  auto i = std::ranges::find(failures, cause, &failure_count::cause);
  return i == failures.end() ? 0 : i->count;
}

} // namespace syncnorm
