#include "syncnorm/nn/replica_set.hpp"

#include "actors/nn/model_copy.hpp"
#include "actors/nn/model_follower.hpp"
#include "syncnorm/error.hpp"

#include <algorithm>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <optional>
#include <utility>

namespace syncnorm::nn {

namespace {

using torch::nn::Module;

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

std::vector<Module*>
pointers_to(const std::vector<std::shared_ptr<Module>>& copies) {
  std::vector<Module*> result;
  for (const auto& copy : copies)
    result.push_back(copy.get());
  return result;
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

[[noreturn]] void refuse(const std::string& text) {
  throw error{errc::invalid_argument, text};
}

} // namespace

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
      auto copy = model_->clone(device);
      detail::complete_copy(*model_, copy.get());
      result.push_back(std::move(copy));
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
    detail::follow_model(*model_, pointers_to(copies_), devices_);
    return false;
  }
  auto anew = make_copies();
  detail::follow_model(*model_, pointers_to(anew), devices_);
  // Nothing throws from here on.
  copies_ = std::move(anew);
  seen_ = std::move(now);
  return true;
}

} // namespace syncnorm::nn
