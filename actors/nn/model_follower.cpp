#include "actors/nn/model_follower.hpp"

#include "actors/nn/graph_node.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/nn/synchronized_batch_norm.hpp"

#include <algorithm>
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace syncnorm::nn::detail {

namespace {

using torch::autograd::variable_list;
using torch::nn::Module;

/// Where the gradients of one parameter's copies come together.
class add_gradients_node final : public torch::autograd::Node {
public:
  add_gradients_node(const at::Tensor& parameter,
                     const std::vector<at::Tensor>& copies)
      : device_{parameter.device()} {
    add_next_edge(torch::autograd::impl::gradient_edge(parameter));
    for (const auto& copy : copies)
      add_input_metadata(copy);
  }

  variable_list apply(variable_list&& grads) override {
    at::Tensor sum;
    auto fresh = false;
    for (const auto& grad : grads) {
      if (!grad.defined())
        continue;
      auto here = grad.to(device_);
      if (!sum.defined()) {
        sum = here;
      } else if (fresh && !c10::GradMode::is_enabled()) {
        sum.add_(here);
      } else {
        sum = sum + here;
        fresh = true;
      }
    }
    return {sum};
  }

  std::string name() const override {
    return "ReplicatedParameterBackward";
  }

private:
  at::Device device_;
};

/// Whatever remembers the content of `copy`, such as a graph, then notices
/// writes to `original`.
void share_version(at::Tensor& copy, const at::Tensor& original) {
  // Such a tensor has no version.
  if (copy.is_inference())
    return;
  torch::autograd::impl::set_version_counter(
      copy, torch::autograd::impl::version_counter(original));
}

/// Gives `copy`, which has memory of its own and now holds what `original`
/// holds, the version of `original`. Graphs that saved the former content of
/// the copy notice if it was different.
void take_over_version(at::Tensor& copy, const at::Tensor& original) {
  // A tensor made under `c10::InferenceMode` counts no versions, even after it
  // has got other memory.
  const auto& counter = torch::autograd::impl::version_counter(original);
  if (copy.is_inference() || !counter.enabled())
    return;
  auto version = counter.current_version();
  const auto& own = torch::autograd::impl::version_counter(copy);
  if (own.enabled() && own.current_version() == version)
    return;
  if (own.enabled())
    torch::autograd::impl::bump_version(copy);
  torch::autograd::impl::set_version_counter(copy,
                                             c10::VariableVersion{version});
}

/// Makes `copy` count its versions. A tensor made under `c10::InferenceMode`
/// counts none, not even after it has got other memory. Inference tensors stay
/// as they are.
void require_version(at::Tensor& copy) {
  if (!copy.is_inference()
      && !torch::autograd::impl::version_counter(copy).enabled())
    torch::autograd::impl::set_version_counter(copy, c10::VariableVersion{0});
}

/// Makes `copy` the same tensor as `original` where the device is the same.
void alias(at::Tensor& copy, const at::Tensor& original, at::Device device) {
  if (original.device() != device)
    copy.set_data(original.detach().to(device));
  else if (copy.scalar_type() != original.scalar_type()
           || copy.device() != device || !copy.is_set_to(original)) {
    copy.set_data(original.detach());
    share_version(copy, original);
  }
}

void connect(const at::Tensor& original, std::vector<at::Tensor>& copies) {
  if (c10::GradMode::is_enabled() && original.requires_grad()) {
    for (auto& copy : copies)
      if (!copy.grad_fn())
        copy.set_requires_grad(true);
    auto node = make_node<add_gradients_node>(original, copies);
    for (std::size_t r = 0; r < copies.size(); ++r)
      torch::autograd::impl::set_gradient_edge(
          copies[r],
          torch::autograd::Edge{node, static_cast<std::uint32_t>(r)});
    return;
  }
  // Graphs of former passes may have saved a copy that has an edge; they need
  // the edge to use the copy.
  for (auto& copy : copies)
    if (!copy.grad_fn() && copy.requires_grad() != original.requires_grad())
      copy.set_requires_grad(original.requires_grad());
}

/// Options that may change between passes.
void follow_options(Module& model, const std::vector<Module*>& copies) {
  auto* layer = dynamic_cast<SynchronizedBatchNormBase*>(&model);
  if (layer == nullptr)
    return;
  const auto& options = layer->layer_options();
  for (auto* copy : copies)
    if (auto* same = dynamic_cast<SynchronizedBatchNormBase*>(copy))
      same->layer_options()
          .eps(options.eps())
          .eps_mode(options.eps_mode())
          .momentum(options.momentum());
}

std::vector<at::Tensor> same_entry(const std::vector<Module*>& copies,
                                   const std::string& name, bool parameter) {
  std::vector<at::Tensor> result;
  for (auto* copy : copies)
    result.push_back((parameter ? copy->named_parameters(false)
                                : copy->named_buffers(false))[name]);
  return result;
}

/// One pass over a model.
class follower {
public:
  explicit follower(const std::vector<torch::Device>& devices)
      : devices_{devices} {}

  /// @param path of `model`, with a dot behind it.
  void follow(Module& model, const std::vector<Module*>& copies,
              const std::string& path) {
    for (auto* copy : copies)
      if (copy->is_training() != model.is_training())
        copy->train(model.is_training());
    follow_options(model, copies);
    for (const auto& entry : model.named_parameters(false))
      follow_parameter(entry.value(), same_entry(copies, entry.key(), true),
                       path + entry.key());
    for (const auto& entry : model.named_buffers(false))
      follow_buffer(entry.value(), same_entry(copies, entry.key(), false),
                    path + entry.key(), model);
    for (const auto& child : model.named_children()) {
      std::vector<Module*> same;
      for (auto* copy : copies)
        same.push_back(copy->named_children()[child.key()].get());
      follow(*child.value(), same, path + child.key() + '.');
    }
  }

private:
  void follow_parameter(const at::Tensor& original,
                        std::vector<at::Tensor> copies,
                        const std::string& path) {
    require_own(original, copies, path, original.requires_grad());
    if (copies[0].is_same(original))
      return;
    for (std::size_t r = 0; r < copies.size(); ++r) {
      alias(copies[r], original, devices_[r]);
      if (original.device() == devices_[r])
        share_version(copies[r], original);
      else
        take_over_version(copies[r], original);
    }
    connect(original, copies);
  }

  void follow_buffer(const at::Tensor& original, std::vector<at::Tensor> copies,
                     const std::string& path, const Module& model) {
    require_own(original, copies, path, model.is_training());
    if (copies[0].is_same(original))
      return;
    alias(copies[0], original, devices_[0]);
    auto [known, is_new] =
        buffers_.try_emplace(original.unsafeGetTensorImpl(), copies);
    for (std::size_t r = 1; r < copies.size(); ++r)
      if (!is_new) {
        alias(copies[r], known->second[r], devices_[r]);
      } else {
        copies[r].set_data(
            original.detach().to(devices_[r], original.scalar_type(),
                                 /*non_blocking=*/false, /*copy=*/true));
        // In training, libtorch's norm writes them and counts no version.
        if (is_libtorch_norm(model) && !original.is_inference())
          share_version(copies[r], original);
        require_version(copies[r]);
      }
  }

  /// Refuses copies that share one tensor, or have the model's own, where they
  /// could not use it that way.
  /// @param is_used whether its use requires one for each copy.
  void require_own(const at::Tensor& original,
                   const std::vector<at::Tensor>& copies,
                   const std::string& path, bool is_used) const {
    for (std::size_t r = 0; r < copies.size(); ++r) {
      auto is_same = [&](const at::Tensor& x) { return x.is_same(copies[r]); };
      auto is_shared =
          is_same(original) || std::ranges::count_if(copies, is_same) > 1;
      if (is_shared && (is_used || original.device() != devices_[r]))
        throw error{errc::invalid_argument,
                    fmt::format("replica_set: model: {}: expected clone() to "
                                "copy it, got one tensor for several: reset() "
                                "must make the modules that it registers",
                                path)};
    }
  }

  const std::vector<torch::Device>& devices_;
  /// The copies of a buffer of the model, which may refer to it twice.
  std::unordered_map<const c10::TensorImpl*, std::vector<at::Tensor>> buffers_;
};

} // namespace

bool is_libtorch_norm(const Module& m) {
  using namespace torch::nn;
  return m.as<BatchNorm1d>() || m.as<BatchNorm2d>() || m.as<BatchNorm3d>()
         || m.as<InstanceNorm1d>() || m.as<InstanceNorm2d>()
         || m.as<InstanceNorm3d>();
}

void follow_model(Module& model, const std::vector<Module*>& copies,
                  const std::vector<torch::Device>& devices) {
  follower{devices}.follow(model, copies, "");
}

} // namespace syncnorm::nn::detail
