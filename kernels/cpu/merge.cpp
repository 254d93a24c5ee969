#include "kernels/backend.hpp"
#include "kernels/math.hpp"

#include <algorithm>

namespace syncnorm::cpu {

namespace {

/// Moments of some neighbouring channels: of as many as make the loops over
/// them worth vectorizing, and few enough for one of these on each level of
/// the recursion.
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

template <class Real>
void finalize_all(const const_moments_view& total,
                  const finalize_options& options, Real* mean, Real* inv_std,
                  Real* running_mean, Real* running_var) {
  const auto* mean_in = static_cast<const Real*>(total.mean);
  const auto* m2_in = static_cast<const Real*>(total.m2);
  const auto tracked = running_mean != nullptr && running_var != nullptr;
  for (std::int64_t c = 0; c < total.channels; ++c) {
    math::mean_m2<double> channel;
    if (total.count != 0)
      channel = {mean_in[c], m2_in[c]};
    auto result = math::finalize(channel, total.count, options,
                                 tracked ? running_mean[c] : 0,
                                 tracked ? running_var[c] : 0);
    mean[c] = Real(result.mean);
    inv_std[c] = Real(result.inv_std);
    if (!tracked)
      continue;
    running_mean[c] = Real(result.running_mean);
    running_var[c] = Real(result.running_var);
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

void finalize_moments(const execution&, const const_moments_view& total,
                      const finalize_options& options, void* mean,
                      void* inv_std, const running_view& running) {
  auto finalize = [&]<class Real>(Real) {
    finalize_all(total, options, static_cast<Real*>(mean),
                 static_cast<Real*>(inv_std), static_cast<Real*>(running.mean),
                 static_cast<Real*>(running.var));
  };
  if (total.type == dtype::float64)
    finalize(double{});
  else
    finalize(float{});
}

} // namespace syncnorm::cpu
