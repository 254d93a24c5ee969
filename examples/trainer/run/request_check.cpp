#include "trainer/run/request_check.hpp"

#include "trainer/failure.hpp"

#include <fmt/format.h>

namespace syncnorm::train {

void require_range(std::uint64_t begin, std::uint64_t end,
                   std::uint64_t samples) {
  if (begin > end || end > samples)
    throw failure{fmt::format("expected a part of {} samples, found {} to {}",
                              samples, begin, end)};
}

void require_place(std::uint64_t index, std::uint64_t replicas) {
  if (replicas > max_run_replicas || index >= replicas)
    throw failure{fmt::format("expected a place among at most {} replicas, "
                              "found number {} of {}",
                              max_run_replicas, index, replicas)};
}

} // namespace syncnorm::train
