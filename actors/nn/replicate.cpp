#include "syncnorm/nn/replicate.hpp"

#include "actors/nn/graph_node.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/nn/synchronized_batch_norm.hpp"

#include <algorithm>
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>
#include <utility>

namespace syncnorm::nn {

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

/// Makes `copy` the same tensor as `original` where the device is the same.
/// They share their version as well: who remembers what is in `copy` learns of
/// what is written to `original`.
void alias(at::Tensor& copy, const at::Tensor& original, at::Device device) {
  if (original.device() != device)
    copy.set_data(original.detach().to(device));
  else if (copy.scalar_type() != original.scalar_type()
           || copy.device() != device || !copy.is_set_to(original)) {
    copy.set_data(original.detach());
    torch::autograd::impl::set_version_counter(
        copy, torch::autograd::impl::version_counter(original));
  }
}

void connect(const at::Tensor& original, std::vector<at::Tensor>& copies) {
  if (c10::GradMode::is_enabled() && original.requires_grad()) {
    for (auto& copy : copies)
      if (!copy.grad_fn())
        copy.set_requires_grad(true);
    auto node = detail::make_node<add_gradients_node>(original, copies);
    for (std::size_t r = 0; r < copies.size(); ++r)
      torch::autograd::impl::set_gradient_edge(
          copies[r],
          torch::autograd::Edge{node, static_cast<std::uint32_t>(r)});
    return;
  }
  // Graphs of former passes may have saved a copy that has an edge, which they
  // need to use it.
  for (auto& copy : copies)
    if (!copy.grad_fn())
      copy.set_requires_grad(original.requires_grad());
}

/// Whether a parameter of the model has been frozen since `copy` had its edges,
/// and the next pass would go by them.
bool is_frozen_since(const Module& model, const Module& copy) {
  if (!c10::GradMode::is_enabled())
    return false;
  auto copies = copy.named_parameters();
  for (const auto& entry : model.named_parameters())
    if (const auto* same = copies.find(entry.key());
        same != nullptr && !entry.value().requires_grad() && same->grad_fn())
      return true;
  return false;
}

std::vector<at::Tensor> same_entry(const std::vector<Module*>& copies,
                                   const std::string& name, bool parameter) {
  std::vector<at::Tensor> result;
  for (auto* copy : copies)
    result.push_back((parameter ? copy->named_parameters(false)
                                : copy->named_buffers(false))[name]);
  return result;
}

std::vector<Module*>
pointers_to(const std::vector<std::shared_ptr<Module>>& copies) {
  std::vector<Module*> result;
  for (const auto& copy : copies)
    result.push_back(copy.get());
  return result;
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

/// While one of these lives, copies are made that can be trained if the model
/// can be, also under the caller's `c10::InferenceMode`.
class trainable_copies {
public:
  explicit trainable_copies(const Module& model) {
    auto parameters = model.parameters();
    auto fixed = [](const auto& x) { return x.is_inference(); };
    if (!c10::InferenceMode::is_enabled()
        || std::ranges::any_of(parameters, fixed))
      return;
    no_inference_.emplace(false);
    no_grad_.emplace();
  }

private:
  std::optional<c10::InferenceMode> no_inference_;
  std::optional<c10::NoGradGuard> no_grad_;
};

/// Autograd could not tell what one copy writes to its input from what another
/// one does, if their inputs were views of one tensor.
void separate_aliases(std::vector<at::Tensor>& parts, const at::Tensor& of) {
  auto is_alias = [&](const auto& part) { return part.is_alias_of(of); };
  if (std::ranges::count_if(parts, is_alias) < 2)
    return;
  for (auto& part : parts)
    if (is_alias(part))
      part = part.clone();
}

[[noreturn]] void refuse(const std::string& text) {
  throw error{errc::invalid_argument, text};
}

} // namespace

std::vector<torch::Tensor> scatter(const torch::Tensor& x,
                                   const std::vector<torch::Device>& devices,
                                   std::int64_t dim) {
  if (devices.empty())
    refuse("scatter: devices: expected 1 or more, got none");
  if (dim < -x.dim() || dim >= x.dim())
    refuse(fmt::format("scatter: dim: expected one of a tensor of {} "
                       "dimensions, got {}",
                       x.dim(), dim));
  auto parts = x.tensor_split(static_cast<std::int64_t>(devices.size()), dim);
  for (std::size_t r = 0; r < parts.size(); ++r)
    parts[r] = parts[r].to(devices[r]);
  separate_aliases(parts, x);
  return parts;
}

torch::Tensor gather(const std::vector<torch::Tensor>& parts,
                     torch::Device device, std::int64_t dim) {
  if (parts.empty())
    refuse("gather: parts: expected 1 or more, got none");
  std::vector<torch::Tensor> here;
  for (const auto& part : parts)
    here.push_back(part.to(device));
  if (here.size() == 1)
    return here[0];
  return here[0].dim() == 0 ? at::stack(here) : at::cat(here, dim);
}

replica_set::replica_set(std::shared_ptr<Module> model,
                         std::vector<torch::Device> devices)
    : model_{std::move(model)},
      devices_{std::move(devices)} {
  if (!model_)
    refuse("replica_set: model: expected a module, got null");
  if (devices_.empty())
    refuse("replica_set: devices: expected 1 or more, got none");
  copies_ = make_copies();
  list(model_, seen_);
}

void replica_set::list(const std::shared_ptr<Module>& m,
                       std::vector<registered>& out) {
  out.push_back({m,
                 {m->named_parameters(false).keys(),
                  m->named_buffers(false).keys(), m->named_children().keys()}});
  for (const auto& child : m->children())
    list(child, out);
}

replica_set::modules replica_set::make_copies() const {
  trainable_copies scope{*model_};
  modules result;
  for (auto device : devices_)
    try {
      result.push_back(model_->clone(device));
    } catch (const c10::Error& x) {
      refuse(fmt::format("replica_set: model: expected a module that clone() "
                         "can copy, got {}: {}",
                         model_->name(), x.what_without_backtrace()));
    }
  return result;
}

bool replica_set::refresh() {
  trainable_copies scope{*model_};
  std::vector<registered> now;
  list(model_, now);
  if (now == seen_ && !is_frozen_since(*model_, *copies_[0])) {
    follow(*model_, pointers_to(copies_));
    return false;
  }
  auto anew = make_copies();
  follow(*model_, pointers_to(anew));
  // Nothing throws from here on.
  copies_ = std::move(anew);
  seen_ = std::move(now);
  return true;
}

void replica_set::follow(Module& model, const std::vector<Module*>& copies) {
  for (auto* copy : copies)
    if (copy->is_training() != model.is_training())
      copy->train(model.is_training());
  follow_options(model, copies);
  for (const auto& entry : model.named_parameters(false)) {
    auto same = same_entry(copies, entry.key(), true);
    for (std::size_t r = 0; r < same.size(); ++r)
      alias(same[r], entry.value(), devices_[r]);
    connect(entry.value(), same);
  }
  for (const auto& entry : model.named_buffers(false)) {
    auto same = same_entry(copies, entry.key(), false);
    alias(same[0], entry.value(), devices_[0]);
    for (std::size_t r = 1; r < same.size(); ++r)
      same[r].set_data(
          entry.value().detach().to(devices_[r], entry.value().scalar_type(),
                                    /*non_blocking=*/false, /*copy=*/true));
  }
  for (const auto& child : model.named_children()) {
    std::vector<Module*> same;
    for (auto* copy : copies)
      same.push_back(copy->named_children()[child.key()].get());
    follow(*child.value(), same);
  }
}

} // namespace syncnorm::nn
