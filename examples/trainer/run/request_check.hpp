#pragma once

#include <cstdint>

// What a replica is asked for may come from another process: it is checked
// before it is used. All throw `failure` with what was expected and found.

namespace syncnorm::train {

/// More replicas than this in a run are nobody's.
inline constexpr std::uint64_t max_run_replicas = std::uint64_t{1} << 20;

/// [begin, end) is part of so many samples.
void require_range(std::uint64_t begin, std::uint64_t end,
                   std::uint64_t samples);

/// A replica is number `index` of so many.
void require_place(std::uint64_t index, std::uint64_t replicas);

} // namespace syncnorm::train
