#pragma once

#include "trainer/input/dataset.hpp"
#include "trainer/plan/settings.hpp"

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>

namespace syncnorm::train {

/// A classifier of images.
class network : public torch::nn::Module {
public:
  /// @param images shape (N, C, H, W), normalized.
  /// @returns shape (N, classes): the logarithms of probabilities, up to a
  ///          constant per row.
  virtual torch::Tensor forward(torch::Tensor images) = 0;
};

using network_ptr = std::shared_ptr<network>;

/// Makes the batch-norm layers of a model. Whatever the kind, parameters and
/// buffers have the names of libtorch's BatchNorm.
class norm_factory {
public:
  explicit norm_factory(norm_kind kind) : kind_{kind} {}

  /// For input of shape (N, channels).
  [[nodiscard]] torch::nn::AnyModule norm1d(std::int64_t channels) const;

  /// For input of shape (N, channels, H, W).
  [[nodiscard]] torch::nn::AnyModule norm2d(std::int64_t channels) const;

private:
  norm_kind kind_;
};

/// Makes a model for images of that shape, in float32 on the CPU.
///
///   mlp     two hidden layers of 128 and 64, each with batch norm
///   cnn     three convolutions (16, 32, 64 channels, 3 x 3), each with batch
///           norm; the last two halve the image
///   resnet  a convolution and three residual blocks (16, 32, 64 channels) of
///           two convolutions each, the last two halve the image
/// @throws failure if the images are too small to be halved twice.
[[nodiscard]] network_ptr make_network(model_kind model, norm_kind norm,
                                       image_shape shape);

/// Gives every weight a value that follows from `seed` and its position alone:
/// uniform over +-sqrt(6 / inputs) for linear and convolution layers (He et
/// al., "Delving deep into rectifiers", 2015), else 1 for a weight and 0 for a
/// bias.
void initialize(network& model, std::uint64_t seed);

/// The type of a model's weights, gradients and statistics.
[[nodiscard]] torch::ScalarType weight_type(precision_kind precision);

/// Brings `model` to that device and its values to that type; the counts of
/// batches stay integers, which `Module::to` would change.
void move_model(network& model, const torch::Device& where,
                torch::ScalarType type);

} // namespace syncnorm::train
