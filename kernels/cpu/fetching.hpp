#pragma once

#include <cstdint>

namespace syncnorm::cpu {

/// Where prefetched memory goes.
enum class fetch_into {
  /// It is not prefetched.
  nowhere,
  first_level,
  second_level,
  /// The first level, and no other level when it is evicted.
  first_level_alone,
};

/// How memory is prefetched.
struct fetching {
  fetch_into where;
  /// Elements from what is read to what is prefetched.
  std::int64_t distance;
};

/// What is prefetched where no CPU below differs. What CPUs fetch by themselves
/// ends with each page, and stops while constants are loaded or the sums of a
/// block passed on. Further ahead, streams crowd each other out of the
/// first-level cache. The second level has room for more.
struct any_cpu {
  /// x of batch_moments, whose channels are planes.
  static constexpr fetching planes{fetch_into::second_level, 8192};
  /// The same for rows that are too wide for the registers.
  static constexpr fetching rows{fetch_into::second_level, 8192};
  /// The same for rows whose sums stay in registers: as nothing delays the
  /// reading, CPUs fetch them by themselves.
  static constexpr fetching tiles{fetch_into::nowhere, 0};
  /// Both inputs of backward_reduce, in planes.
  static constexpr fetching gradient_planes{fetch_into::first_level, 512};
  /// The same for rows that are too wide for the registers, and for others.
  static constexpr fetching gradient_rows{gradient_planes};
  static constexpr fetching gradient_tiles{tiles};
  /// Inputs of elementwise operations, and their outputs.
  static constexpr fetching cached{fetch_into::first_level, 512};
  /// The input where the output goes past the caches.
  static constexpr fetching streamed{fetch_into::second_level, 1024};
  /// The same for two inputs.
  static constexpr fetching streamed_pair{streamed};
  /// The same for rows whose constants stay in memory: one input, and two.
  static constexpr fetching streamed_rows{streamed};
  static constexpr fetching streamed_row_pair{streamed};
};

/// AMD's Zen 4 fetches planes best if left alone; inputs that no cache will
/// have when they are read again get in the way of others there. Measured, like
/// what follows: docs/tuning.md.
struct zen4 : any_cpu {
  static constexpr fetching planes{fetch_into::nowhere, 0};
  static constexpr fetching gradient_planes{fetch_into::second_level, 1024};
  static constexpr fetching gradient_rows{gradient_planes};
  static constexpr fetching cached{fetch_into::second_level, 1024};
  static constexpr fetching streamed{fetch_into::first_level_alone, 704};
  static constexpr fetching streamed_pair{streamed};
  static constexpr fetching streamed_rows{streamed};
};

/// Zen 5 fetches two tensors best if left alone, unless sums or constants come
/// in between or a cache has room for the output.
struct zen5 : any_cpu {
  static constexpr fetching planes{fetch_into::first_level_alone, 4096};
  static constexpr fetching rows{planes};
  static constexpr fetching tiles{planes};
  static constexpr fetching gradient_planes{fetch_into::nowhere, 0};
  static constexpr fetching gradient_rows{fetch_into::first_level_alone, 8192};
  static constexpr fetching gradient_tiles{fetch_into::first_level, 2048};
  static constexpr fetching cached{fetch_into::first_level, 1024};
  static constexpr fetching streamed{fetch_into::first_level, 2048};
  static constexpr fetching streamed_pair{fetch_into::nowhere, 0};
  static constexpr fetching streamed_rows{fetch_into::first_level_alone, 1024};
  static constexpr fetching streamed_row_pair{streamed_rows};
};

} // namespace syncnorm::cpu
