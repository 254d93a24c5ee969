#pragma once

// Merges of partial results whose element counts are known before the results:
// finding what a merge needs from the counts takes longer than the merge.

#include "kernels/cuda/unroll.hpp"
#include "kernels/math.hpp"

namespace syncnorm::cuda {

/// The merge of b into a.
template <class Real>
struct known_merge {
  math::merge_weights<Real> weights;
  /// False if b has no elements: its merge then leaves a unchanged.
  bool counts = false;

  known_merge() = default;

  /// @param n_a, n_b counts >= 0; n_b is 0 where n_a is.
  SYNCNORM_HOST_DEVICE known_merge(Real n_a, Real n_b)
      : weights{n_b > 0 ? math::weights_of_merge<Real>(n_a, n_b)
                        : math::merge_weights<Real>{}},
        counts{n_b > 0} {}

  template <class Reduction>
  SYNCNORM_HOST_DEVICE void apply(typename Reduction::state& a,
                                  const typename Reduction::state& b) const {
    if (counts)
      a = Reduction::merge(a, b, weights);
  }
};

/// The merges of `Size` partial results, a power of two: neighbours at distance
/// 1, then 2, 4, ...
template <class Real, int Size>
struct known_tree {
  known_merge<Real> merges[Size];
  /// Elements of all.
  Real count = 0;

  known_tree() = default;

  /// @param counts  elements of each, no more than of the one before.
  SYNCNORM_HOST_DEVICE explicit known_tree(const Real (&counts)[Size]) {
    Real sums[Size];
    SYNCNORM_UNROLL
    for (int i = 0; i < Size; ++i)
      sums[i] = counts[i];
    for_each([&](int a, int b, int i) {
      merges[i] = {sums[a], sums[b]};
      sums[a] += sums[b];
    });
    count = sums[0];
  }

  /// Leaves the result in `parts[0]`.
  template <class Reduction>
  SYNCNORM_HOST_DEVICE void
  apply(typename Reduction::state (&parts)[Size]) const {
    for_each([&](int a, int b, int i) {
      merges[i].template apply<Reduction>(parts[a], parts[b]);
    });
  }

private:
  /// Calls `merge(a, b, i)` for the i-th merge, of part b into part a.
  template <class Merge>
  SYNCNORM_HOST_DEVICE static void for_each(const Merge& merge) {
    int i = 0;
    SYNCNORM_UNROLL
    for (int distance = 1; distance < Size; distance *= 2) {
      SYNCNORM_UNROLL
      for (int a = 0; a < Size; a += 2 * distance)
        merge(a, a + distance, i++);
    }
  }
};

} // namespace syncnorm::cuda
