#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace syncnorm::train {

/// A stream of random numbers that is the same on every machine: SplitMix64.
/// Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014.
class random_stream {
public:
  /// Streams of different `seed` or `number` are independent.
  random_stream(std::uint64_t seed, std::uint64_t number) noexcept;

  std::uint64_t next() noexcept;

  /// Evenly distributed over [0, bound); `bound` is 1 or more.
  std::uint64_t below(std::uint64_t bound) noexcept;

  /// Evenly distributed over [0, 1), in steps of 2^-53.
  double uniform() noexcept;

private:
  std::uint64_t state_;
};

/// The order in which one epoch shows the samples: a permutation that follows
/// from seed and epoch alone. So seed, epoch and the position in it are the
/// whole random state of a run, and every replica can work out its own samples.
class epoch_order {
public:
  epoch_order(std::size_t samples, std::uint64_t seed, std::uint64_t epoch);

  /// The samples at positions [begin, end).
  [[nodiscard]] std::span<const std::uint32_t> range(std::size_t begin,
                                                     std::size_t end) const {
    return std::span{order_}.subspan(begin, end - begin);
  }

private:
  std::vector<std::uint32_t> order_;
};

/// Part of a batch: positions [begin, end) of the epoch.
struct position_range {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const noexcept {
    return end - begin;
  }

  friend bool operator==(const position_range&,
                         const position_range&) = default;
};

/// The part of `whole` that replica `index` of `replicas` works on. The parts
/// are contiguous, in the replicas' order, and differ in size by at most one;
/// some are empty if there are fewer samples than replicas.
[[nodiscard]] position_range shard_of(position_range whole,
                                      std::size_t replicas, std::size_t index);

} // namespace syncnorm::train
