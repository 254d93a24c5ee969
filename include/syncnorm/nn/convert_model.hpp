#pragma once

#include "syncnorm/error.hpp"

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <tuple>
#include <type_traits>

namespace syncnorm::nn {

/// How `convert_model` treats owners that C++ does not let it see.
struct ConvertOptions {
  /// Convert a layer even if something besides the module registry and
  /// libtorch's containers holds it, such as a variable of the caller. That
  /// holder keeps the plain layer.
  bool allow_other_owners = false;
};

/// Replaces every BatchNorm1d, 2d and 3d of libtorch below `model` with a
/// synchronized layer and returns the model, or the new layer if `model` itself
/// is a batch norm. Everything is kept: the parameters are the same tensors (an
/// optimizer that holds them goes on working), the buffers share memory with
/// the old ones, and counters, training flags and all options are the same.
/// Whether a layer is affine and tracks statistics is read from its tensors,
/// not its options. A layer that occurs in two places stays one layer. Other
/// modules, norms of other kinds and classes derived from BatchNorm are left
/// alone.
///
/// Finds layers through the module registry, at any depth, also below
/// `DataParallelWithCallback`. Replaces them in the registry, in `Sequential`,
/// `ModuleList` and `ModuleDict`, and in modules that derive from
/// `ReplaceableChildren`.
///
/// A module that keeps its layer in a typed member, as in
/// `torch::nn::BatchNorm2d bn{nullptr}; bn = register_module("bn", ...)`, goes
/// on calling the layer in that member: C++ cannot replace it with one of
/// another type. Declare the member as `SynchronizedBatchNorm2d`, which is a
/// plain batch norm until it is synchronized, or derive the module from
/// `ReplaceableChildren`.
///
/// @throws error `invalid_argument`, before anything is changed, if `model` is
///         null; if a layer has an owner other than those named above and the
///         options do not allow that; if a layer has only some of its tensors;
///         or if `track_running_stats` was switched off on a layer that has
///         running statistics, which no synchronized layer can imitate. The
///         error names the layer's path.
[[nodiscard]] std::shared_ptr<torch::nn::Module>
convert_model(std::shared_ptr<torch::nn::Module> model,
              const ConvertOptions& options = {});

/// The same for a model of a known type; the result has that type.
/// @throws error also if the model itself is a batch norm.
template <class ModuleType>
std::shared_ptr<ModuleType>
convert_model(const std::shared_ptr<ModuleType>& model,
              const ConvertOptions& options = {}) {
  auto result = std::dynamic_pointer_cast<ModuleType>(
      convert_model(std::shared_ptr<torch::nn::Module>{model}, options));
  if (!result)
    throw error{errc::invalid_argument,
                "convert_model: model: a batch norm becomes a layer of another "
                "type: pass and take a std::shared_ptr<torch::nn::Module>"};
  return result;
}

/// The same for `torch::nn::Sequential` and other holders.
template <class Holder, class Contained = typename Holder::ContainedType>
requires std::is_base_of_v<torch::nn::ModuleHolder<Contained>, Holder> Holder
convert_model(const Holder& model, const ConvertOptions& options = {}) {
  // The module stays the same object.
  auto module = model.is_empty() ? nullptr : model.ptr();
  std::ignore = convert_model(module, options);
  return model;
}

} // namespace syncnorm::nn
