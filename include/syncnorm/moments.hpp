#pragma once

#include "syncnorm/execution.hpp"
#include "syncnorm/tensor_view.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace syncnorm {

/// The moments of a set of values, per channel: their number, which is the
/// same for every channel and known to the host, their mean, and M2, the sum
/// of their squared deviations from that mean. The variance is M2 / count.
///
/// `mean` and `m2` point to C elements of `type`, float32 or float64, on
/// `where`. If `count` is 0, their content has no meaning, and they may be
/// null.
struct const_moments_view {
  /// How many elements each channel has.
  std::int64_t count = 0;
  /// E[x], `[channels]`.
  const void* mean = nullptr;
  /// Σ (x - mean)², `[channels]`.
  const void* m2 = nullptr;
  /// C.
  std::int64_t channels = 0;
  /// The type of mean and M2.
  dtype type = dtype::float32;
  /// Where they lie.
  device where;
};

/// Moments to be written. A function sets `count` on the host at once and
/// `mean` and `m2` on the device.
struct moments_view {
  /// How many elements each channel has.
  std::int64_t count = 0;
  /// E[x], `[channels]`.
  void* mean = nullptr;
  /// Σ (x - mean)², `[channels]`.
  void* m2 = nullptr;
  /// C.
  std::int64_t channels = 0;
  /// The type of mean and M2.
  dtype type = dtype::float32;
  /// Where they lie.
  device where;

  /// The same memory, to be read.
  [[nodiscard]] operator const_moments_view() const noexcept {
    return {count, mean, m2, channels, type, where};
  }
};

/// Workspace in bytes that `batch_moments` needs for `x` on its device.
/// @throws error `invalid_argument` or `dtype_mismatch` for a layout that no
///         tensor can have, `device_unavailable` for a CUDA device in a build
///         without CUDA.
[[nodiscard]] std::size_t batch_moments_workspace(const tensor_layout& x);

/// Sets `out` to the moments of each channel of `x` over samples and spatial
/// elements:
///
///     count = N * S,  mean_c = sum(x_c) / count,  m2_c = sum((x_c - mean_c)^2)
///
/// @param run   where to run; must share memory with `x`, `out` and `scratch`.
/// @param x     any dtype, any layout, N or S may be 0 (then only
///              `out.count = 0` is set).
/// @param out   C channels of `statistics_type(x.type())` or, on request, of
///              float64 for any dtype. Its arrays must exist even for an empty
///              x.
/// @throws error `shape_mismatch`, `dtype_mismatch`, `device_mismatch`,
///         `invalid_argument` (null or misaligned pointer; memory that overlaps
///         so that something would be overwritten before it is read, which is
///         not checked for tensors with gaps between their samples; on CUDA,
///         more blocks than a grid has), `workspace_too_small`,
///         `device_unavailable` (a build without CUDA), `device_failure`;
///         nothing is written before the arguments are checked.
///
/// Numerics: shifted block sums merged by Chan's update; never a plain sum of
/// squares. Accumulates in float32 or wider. Deterministic. Tolerances are in
/// docs/numerics.md. A NaN or infinity stays in its channel.
/// Source: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm
/// for Computing Sample Variances", 1979.
void batch_moments(const execution& run, const const_tensor_view& x,
                   moments_view& out, const workspace& scratch);

/// Sets `out` to the moments of the union of `parts`:
///
///     n = n_a + n_b,  d = mean_b - mean_a,
///     mean = mean_a + d * n_b / n,  m2 = m2_a + m2_b + d^2 * n_a * n_b / n
///
/// applied along a fixed binary tree: neighbours at distance 1, then 2, then 4.
/// The result has the same bits whenever the parts are in the same order, even
/// if aligned groups of a power of two were merged first. A part of count 0
/// changes nothing, whatever its content.
///
/// @param parts R >= 1 moments of equal channels, dtype and memory; none of
///              them may overlap `out`, except that `out` may be the first. On
///              a CUDA device at most 2048: if there are more, merge aligned
///              groups of a power of two first.
/// @throws error as `batch_moments`; `invalid_argument` for no part, for more
///         than the device takes, or for counts above 2^63 - 1 in all.
/// Source: as `batch_moments`; docs/numerics.md draws the tree.
void merge_moments(const execution& run,
                   std::span<const const_moments_view> parts,
                   moments_view& out);

/// How epsilon keeps the inverse standard deviation finite.
enum class eps_mode : std::uint8_t {
  /// 1 / sqrt(var + eps), as PyTorch.
  plus = 0,
  /// 1 / sqrt(max(var, eps)).
  clamp = 1,
};

/// Statistics over all batches seen so far, updated once per round. Each
/// pointer is null or points to C elements of the moments' dtype on their
/// device; either both are null or neither is. They do not overlap.
struct running_view {
  /// The running mean, `[C]`.
  void* mean = nullptr;
  /// Unbiased (divided by count - 1).
  void* var = nullptr;
};

/// Epsilon, and how much this batch counts in the running statistics.
struct finalize_options {
  /// Keeps the inverse standard deviation finite: 0 or more. With 0 it is
  /// infinite for a channel whose values are all the same.
  double eps = 1e-5;
  /// How epsilon is used.
  eps_mode mode = eps_mode::plus;
  /// The weight of this batch in the running statistics, in [0, 1]. For a
  /// cumulative average over all batches the caller passes
  /// 1 / (number of batches including this one).
  double momentum = 0.1;
};

/// Sets `mean` and `inv_std` from `total`, with the biased variance, and
/// updates the running statistics:
///
///     var = m2 / count
///     inv_std = 1 / sqrt(var + eps), or 1 / sqrt(max(var, eps))
///     running_mean = (1 - momentum) * running_mean + momentum * mean
///     running_var = (1 - momentum) * running_var
///                   + momentum * m2 / (count - 1)
///
/// @param total   count 1 leaves `running.var` unchanged; count 0 leaves both
///                running statistics unchanged, with mean 0 and the inverse
///                standard deviation of variance 0.
/// @param mean, inv_std  C elements each of `total.type`, on its device; may be
///                the memory of `total.mean` and `total.m2`, but must not
///                overlap them, each other or `running` in any other way.
/// @param running may be the memory of `total.mean` and `total.m2` if neither
///                `mean` nor `inv_std` is, and must not overlap them in any
///                other way.
/// @throws error as `batch_moments`; `invalid_argument` for eps < 0 or not
///         finite, an unknown mode, or a momentum outside [0, 1].
void finalize_moments(const execution& run, const const_moments_view& total,
                      const finalize_options& options, void* mean,
                      void* inv_std, const running_view& running);

} // namespace syncnorm
