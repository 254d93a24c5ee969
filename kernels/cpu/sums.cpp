#include "kernels/backend.hpp"
#include "kernels/math.hpp"
#include "kernels/no_part.hpp"

#include <algorithm>
#include <array>

namespace syncnorm::cpu {

namespace {

/// Neighbouring elements: as many as make the loops over them worth
/// vectorizing.
constexpr std::int64_t width = 64;

template <class Real>
using tile = std::array<Real, width>;

/// The tree of `merge_moments` over `parts`, from the root down.
/// @param nothing  stands in for a null part.
template <class Real>
void add_tree(std::span<const void* const> parts, std::int64_t first,
              std::int64_t elements, Real nothing, tile<Real>& out) {
  if (parts.size() == 1) {
    if (parts[0] == nullptr)
      out.fill(nothing);
    else
      std::copy_n(static_cast<const Real*>(parts[0]) + first, elements,
                  out.begin());
    return;
  }
  auto left = std::size_t(math::tree_split(std::int64_t(parts.size())));
  add_tree(parts.first(left), first, elements, nothing, out);
  tile<Real> right;
  add_tree(parts.subspan(left), first, elements, nothing, right);
  for (std::size_t i = 0; i < std::size_t(elements); ++i)
    out[i] += right[i];
}

template <class Real>
void add_all(std::span<const void* const> parts, std::int64_t elements,
             Real* out) {
  auto nothing = no_part<Real>(parts);
  for (std::int64_t first = 0; first < elements; first += width) {
    auto size = std::min(width, elements - first);
    tile<Real> total;
    add_tree(parts, first, size, nothing, total);
    std::copy_n(total.begin(), size, out + first);
  }
}

template <class Real>
void clear_all(const Real* inv_std, Real limit, std::int64_t channels,
               Real* sums) {
  for (std::int64_t c = 0; c < channels; ++c)
    if (inv_std[c] >= limit)
      sums[c] = 0;
}

} // namespace

void add_arrays(const execution&, std::span<const void* const> parts,
                std::int64_t elements, dtype type, void* out) {
  if (type == dtype::float64)
    add_all(parts, elements, static_cast<double*>(out));
  else
    add_all(parts, elements, static_cast<float*>(out));
}

void round_array(const execution&, const double* from, std::int64_t elements,
                 float* out) {
  std::transform(from, from + elements, out,
                 [](double x) { return static_cast<float>(x); });
}

void clear_clamped(const execution&, const void* inv_std, double eps,
                   std::int64_t channels, dtype type, void* sum_dy_xmu) {
  if (type == dtype::float64)
    clear_all(static_cast<const double*>(inv_std),
              math::clamped_inv_std<double>(eps), channels,
              static_cast<double*>(sum_dy_xmu));
  else
    clear_all(static_cast<const float*>(inv_std),
              math::clamped_inv_std<float>(eps), channels,
              static_cast<float*>(sum_dy_xmu));
}

} // namespace syncnorm::cpu
