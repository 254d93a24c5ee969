#pragma once

namespace syncnorm::cpu {

/// CPUs whose memory was found to want different treatment. Results are the
/// same within rounding, and those of each operation the same bits.
enum class cpu_kind { any, zen4, zen5 };

/// What this CPU is. Tests change it.
[[nodiscard]] cpu_kind& this_cpu();

} // namespace syncnorm::cpu
