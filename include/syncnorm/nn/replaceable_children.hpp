#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

namespace syncnorm::nn {

/// A module that keeps its children in members of its own, besides libtorch's
/// registry, and can be given another child. `convert_model` calls
/// `replace_child`.
///
/// `clone()`, which `DataParallelWithCallback` needs, calls `reset()` on a copy
/// that has the members of the original. In `reset()`, make a layer of the type
/// that the member has now: a module whose `reset()` makes the plain layer
/// again cannot be copied once it is converted.
///
///     struct NetImpl : torch::nn::Cloneable<NetImpl>,
///                      syncnorm::nn::ReplaceableChildren {
///       torch::nn::AnyModule norm{torch::nn::BatchNorm2d(64)};
///
///       NetImpl() { reset(); }
///
///       void reset() override {
///         norm = norm.clone(); // of the same type
///         register_module("norm", norm.ptr());
///       }
///
///       void replace_child(const std::string&,
///                          const std::shared_ptr<torch::nn::Module>& child)
///           override {
///         norm = torch::nn::AnyModule{std::dynamic_pointer_cast<
///             syncnorm::nn::SynchronizedBatchNorm2dImpl>(child)};
///       }
///     };
class ReplaceableChildren {
public:
  ReplaceableChildren() = default;
  /// Copies nothing: the interface has no state.
  ReplaceableChildren(const ReplaceableChildren&) = default;
  /// Copies nothing: the interface has no state.
  ReplaceableChildren& operator=(const ReplaceableChildren&) = default;
  virtual ~ReplaceableChildren() = default;

  /// The child registered as `name` has become `child`: the registry already
  /// has it, the members must follow.
  virtual void
  replace_child(const std::string& name,
                const std::shared_ptr<torch::nn::Module>& child) = 0;
};

} // namespace syncnorm::nn
