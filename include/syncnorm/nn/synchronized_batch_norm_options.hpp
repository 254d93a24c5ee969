#pragma once

#include "syncnorm/moments.hpp"

#include <torch/arg.h>
#include <torch/nn/options/batchnorm.h>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace syncnorm::nn {

/// A momentum, or none for the cumulative average over all batches:
/// `c10::optional<double>` or `std::optional<double>`, whichever this libtorch
/// uses.
using optional_momentum = std::decay_t<
    decltype(std::declval<const torch::nn::BatchNormOptions&>().momentum())>;

/// Options of `SynchronizedBatchNorm1d`, `2d` and `3d`: those of libtorch's
/// BatchNorm, and how epsilon is used.
struct SynchronizedBatchNormOptions {
  /// libtorch's defaults, for `num_features` channels.
  SynchronizedBatchNormOptions(std::int64_t num_features)
      : num_features_{num_features} {}

  /// The options of a plain layer, taken over as they are.
  SynchronizedBatchNormOptions(const torch::nn::BatchNormOptions& plain)
      : num_features_{plain.num_features()},
        eps_{plain.eps()},
        momentum_{plain.momentum()},
        affine_{plain.affine()},
        track_running_stats_{plain.track_running_stats()} {}

  /// Number of channels C, 1 or more. Changing it after construction leaves
  /// the layer's tensors as they are, so that calls fail.
  TORCH_ARG(std::int64_t, num_features);

  /// Keeps the inverse standard deviation finite; see `eps_mode`. 0 or more.
  /// With 0, the output of a channel of equal values is NaN in training, where
  /// libtorch uses 0 as the inverse standard deviation.
  TORCH_ARG(double, eps) = 1e-5;

  /// Whether epsilon is added to the variance or is its lower bound.
  TORCH_ARG(syncnorm::eps_mode, eps_mode) = syncnorm::eps_mode::plus;

  /// The weight of a batch in the running statistics, in [0, 1]; without a
  /// value they are the cumulative average over all batches.
  TORCH_ARG(optional_momentum, momentum) = 0.1;

  /// Whether there are a weight and a bias. Changing it after construction
  /// affects not calls but `clone`, as in libtorch's layers: `clone` fails if
  /// the option was switched off, and makes a layer that has both if it was
  /// switched on.
  TORCH_ARG(bool, affine) = true;

  /// Whether there are running statistics; without them, evaluation also uses
  /// the batch's own statistics. Changing it after construction has the same
  /// effects as with `affine`.
  TORCH_ARG(bool, track_running_stats) = true;
};

/// Options of `SynchronizedBatchNorm1d`.
using SynchronizedBatchNorm1dOptions = SynchronizedBatchNormOptions;
/// Options of `SynchronizedBatchNorm2d`.
using SynchronizedBatchNorm2dOptions = SynchronizedBatchNormOptions;
/// Options of `SynchronizedBatchNorm3d`.
using SynchronizedBatchNorm3dOptions = SynchronizedBatchNormOptions;

} // namespace syncnorm::nn
