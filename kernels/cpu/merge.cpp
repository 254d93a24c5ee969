#include "kernels/backend.hpp"
#include "kernels/math.hpp"

#include <algorithm>

namespace syncnorm::cpu {

namespace {

/// Moments of some neighbouring channels: enough to make the loops over them
/// worth vectorizing, and few enough for one tile on each level of the
/// recursion.
template <class Real>
struct tile {
  static constexpr std::int64_t width = 64;

  std::int64_t count = 0;
  Real mean[width];
  Real m2[width];
};

template <class Real>
void load(const const_moments_view& part, std::int64_t first,
          std::int64_t channels, tile<Real>& out) {
  out.count = part.count;
  if (part.count == 0)
    return;
  std::copy_n(static_cast<const Real*>(part.mean) + first, channels, out.mean);
  std::copy_n(static_cast<const Real*>(part.m2) + first, channels, out.m2);
}

/// a = a merged with b.
template <class Real>
void merge(tile<Real>& a, const tile<Real>& b, std::int64_t channels) {
  if (b.count == 0)
    return;
  if (a.count == 0) {
    a = b;
    return;
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    auto both = math::merged_node<Real>({a.mean[c], a.m2[c]}, a.count,
                                        {b.mean[c], b.m2[c]}, b.count);
    a.mean[c] = both.mean;
    a.m2[c] = both.m2;
  }
  a.count += b.count;
}

/// The tree of `merge_moments` over `parts`, from the root down.
template <class Real>
void merge_tree(std::span<const const_moments_view> parts, std::int64_t first,
                std::int64_t channels, tile<Real>& out) {
  if (parts.size() == 1) {
    load(parts[0], first, channels, out);
    return;
  }
  auto left = std::size_t(math::tree_split(std::int64_t(parts.size())));
  merge_tree(parts.first(left), first, channels, out);
  tile<Real> right;
  merge_tree(parts.subspan(left), first, channels, right);
  merge(out, right, channels);
}

template <class Real>
void merge_all(std::span<const const_moments_view> parts,
               const moments_view& out) {
  for (std::int64_t first = 0; first < out.channels;
       first += tile<Real>::width) {
    auto channels = std::min(tile<Real>::width, out.channels - first);
    tile<Real> total;
    merge_tree(parts, first, channels, total);
    std::copy_n(total.mean, channels, static_cast<Real*>(out.mean) + first);
    std::copy_n(total.m2, channels, static_cast<Real*>(out.m2) + first);
  }
}

} // namespace

void merge_moments(const execution&, std::span<const const_moments_view> parts,
                   const moments_view& out) {
  if (out.type == dtype::float64)
    merge_all<double>(parts, out);
  else
    merge_all<float>(parts, out);
}

} // namespace syncnorm::cpu
