#pragma once

#include <cstdint>

// A request to a replica may come from another process: it is checked before it
// is used. All checks throw `failure` with what was expected and found.

namespace syncnorm::train {

/// No run has more replicas than this.
inline constexpr std::uint64_t max_run_replicas = std::uint64_t{1} << 20;

/// [begin, end) is part of that many samples.
void require_range(std::uint64_t begin, std::uint64_t end,
                   std::uint64_t samples);

/// A replica is number `index` of that many.
void require_place(std::uint64_t index, std::uint64_t replicas);

} // namespace syncnorm::train
