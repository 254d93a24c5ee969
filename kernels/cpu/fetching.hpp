#pragma once

#include <cstdint>

namespace syncnorm::cpu {

/// Where memory that is asked for ahead goes to.
enum class fetch_into {
  /// It is not asked for.
  nowhere,
  first_level,
  second_level,
  /// The first level, and no other when it leaves that.
  first_level_alone,
};

/// How memory is asked for ahead.
struct fetching {
  fetch_into where;
  /// Elements from what is read to what is asked for.
  std::int64_t distance;
};

/// What CPUs are asked for. What they fetch by themselves ends with each page,
/// and stops while constants are loaded or the sums of a block given away.
/// Further ahead, streams crowd each other out of the first-level cache. The
/// second level has room for more.
struct any_cpu {
  /// x of batch_moments, whose channels are planes.
  static constexpr fetching planes{fetch_into::second_level, 8192};
  /// The same for rows that are too wide for the registers.
  static constexpr fetching rows{fetch_into::second_level, 8192};
  /// Both inputs of backward_reduce.
  static constexpr fetching gradients{fetch_into::first_level, 512};
  /// Inputs of elementwise operations, and their outputs.
  static constexpr fetching cached{fetch_into::first_level, 512};
  /// The inputs where the output goes past the caches.
  static constexpr fetching streamed{fetch_into::second_level, 1024};
  /// The same for two tensors and rows whose constants stay in memory.
  static constexpr fetching streamed_pair{streamed};
};

/// AMD's Zen 4 fetches planes best if it is left alone, and inputs that no
/// cache will have when they are read again are in the way of others there.
/// Measured: docs/benchmarks.md.
struct zen4 : any_cpu {
  static constexpr fetching planes{fetch_into::nowhere, 0};
  static constexpr fetching gradients{fetch_into::second_level, 1024};
  static constexpr fetching cached{fetch_into::second_level, 1024};
  static constexpr fetching streamed{fetch_into::first_level_alone, 704};
};

/// Which of them this CPU is. Tests change it.
enum class cpu_kind { any, zen4 };
[[nodiscard]] cpu_kind& this_cpu();

} // namespace syncnorm::cpu
