#pragma once

// The loop of one thread of a reduction: loads in rounds; all loads of a round
// are in flight before one is used.

#include "kernels/cuda/partition.hpp"
#include "kernels/cuda/unroll.hpp"

namespace syncnorm::cuda {

/// One round. `fetch()` does the next load, `add(in)` takes an array of loads.
template <int Loads, class Fetch, class Add>
SYNCNORM_HOST_DEVICE void add_round(const Fetch& fetch, const Add& add) {
  decltype(fetch()) in[Loads];
  SYNCNORM_UNROLL
  for (int i = 0; i < Loads; ++i)
    in[i] = fetch();
  add(in);
}

/// What is left after the last full round: half a round, a quarter, ... where
/// that much is left.
template <int Loads, class Fetch, class Add>
SYNCNORM_HOST_DEVICE void add_halves(int left, int step, const Fetch& fetch,
                                     const Add& add) {
  if constexpr (Loads > 0) {
    if (left > (Loads - 1) * step) {
      add_round<Loads>(fetch, add);
      left -= Loads * step;
    }
    add_halves<Loads / 2>(left, step, fetch, add);
  }
}

/// The same, up to `Most` loads at once.
template <int Most, class Fetch, class Add>
SYNCNORM_HOST_DEVICE void add_rest(int left, int step, const Fetch& fetch,
                                   const Add& add) {
  decltype(fetch()) in[Most][1];
  SYNCNORM_UNROLL
  for (int i = 0; i < Most; ++i)
    if (left > i * step)
      in[i][0] = fetch();
  SYNCNORM_UNROLL
  for (int i = 0; i < Most; ++i)
    if (left > i * step)
      add(in[i]);
}

/// All loads of a thread that takes every `step`-th of `left` units, starting
/// with the first.
/// @tparam Flight  loads of a round.
template <int Flight, int Width, class Fetch, class Add>
SYNCNORM_HOST_DEVICE void add_in_rounds(int left, int step, const Fetch& fetch,
                                        const Add& add) {
  for (; left > (Flight - 1) * step; left -= Flight * step)
    add_round<Flight>(fetch, add);
  // With vectors, `add_rest` would take registers that other blocks need.
  if constexpr (Width == 1)
    add_rest<Flight - 1>(left, step, fetch, add);
  else
    add_halves<Flight / 2>(left, step, fetch, add);
}

} // namespace syncnorm::cuda
