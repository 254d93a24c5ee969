#include "syncnorm/nn/replica_set.hpp"

#include "actors/nn/model_copy.hpp"
#include "actors/nn/model_follower.hpp"
#include "actors/nn/model_keeper.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/nn/synchronized_batch_norm.hpp"

#include <algorithm>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <optional>
#include <utility>

namespace syncnorm::nn {

namespace {

using torch::nn::Module;

/// Whether a parameter of the model has been frozen since `copy` got its edges,
/// which the next pass would still use.
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

/// Keeps the memory of parameters and buffers, so that no other tensors can lie
/// there.
std::vector<torch::Tensor> memory_of(const Module& model) {
  std::vector<torch::Tensor> result;
  for (const auto& x : model.parameters())
    result.push_back(x.detach());
  for (const auto& x : model.buffers())
    result.push_back(x.detach());
  return result;
}

bool is_same_memory(const torch::Tensor& a, const torch::Tensor& b) {
  return a.device() == b.device() && a.scalar_type() == b.scalar_type()
         && a.is_set_to(b);
}

/// Whether a module's graphs allow a pass to change its buffers: norms read
/// running statistics only in evaluation, where ours keep their own, and
/// libtorch's notice what others write.
bool is_norm(const Module& m) {
  return m.as<SynchronizedBatchNormBase>() != nullptr
         || detail::is_libtorch_norm(m);
}

/// Calls `f` with each buffer of the model, except those of norms, and the
/// copy's buffer.
template <class F>
void for_each_buffer(const Module& model, const Module& copy, const F& f) {
  auto same = copy.named_buffers(false);
  if (!is_norm(model))
    for (const auto& entry : model.named_buffers(false))
      if (const auto* x = same.find(entry.key()); x != nullptr)
        f(entry.value(), *x);
  auto children = copy.named_children();
  for (const auto& child : model.named_children())
    for_each_buffer(*child.value(), *children[child.key()], f);
}

std::vector<std::size_t>
references_to(const Module& model,
              const std::vector<std::shared_ptr<Module>>& copies) {
  std::vector<std::size_t> result;
  for (const auto& copy : copies)
    for_each_buffer(model, *copy, [&](const auto&, const torch::Tensor& x) {
      result.push_back(x.use_count());
    });
  return result;
}

/// Whether anything besides the copies, such as a graph, holds a buffer of
/// theirs that the next pass would overwrite.
bool would_overwrite(const Module& model,
                     const std::vector<std::shared_ptr<Module>>& copies,
                     const std::vector<std::size_t>& references) {
  auto result = false;
  std::size_t i = 0;
  for (const auto& copy : copies)
    for_each_buffer(model, *copy,
                    [&](const torch::Tensor& original, const torch::Tensor& x) {
                      if (x.use_count() > references[i++]
                          && !is_same_memory(x, original)
                          && !x.equal(original.to(x.options())))
                        result = true;
                    });
  return result;
}

std::vector<Module*>
pointers_to(const std::vector<std::shared_ptr<Module>>& copies) {
  std::vector<Module*> result;
  for (const auto& copy : copies)
    result.push_back(copy.get());
  return result;
}

/// While one of these lives, the copies made can be trained if the model can
/// be, even under the caller's `c10::InferenceMode`.
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

/// @param all tensors by their paths in the model.
void require_dense(const torch::OrderedDict<std::string, torch::Tensor>& all) {
  for (const auto& x : all)
    if (x.value().layout() != torch::kStrided)
      refuse(fmt::format("replica_set: model: {}: expected a dense tensor, got "
                         "{}",
                         x.key(), c10::str(x.value().layout())));
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
  memory_ = memory_of(*model_);
  references_ = references_to(*model_, copies_);
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
  require_dense(model_->named_parameters());
  require_dense(model_->named_buffers());
  trainable_copies scope{*model_};
  modules result;
  detail::model_keeper keeper{*model_};
  for (auto device : devices_)
    try {
      auto copy = model_->clone(device);
      keeper.restore();
      detail::complete_copy(*model_, copy.get());
      result.push_back(std::move(copy));
    } catch (const c10::Error& x) {
      keeper.restore();
      refuse(fmt::format("replica_set: model: expected a module that clone() "
                         "can copy, got {}: {}",
                         model_->name(), x.what_without_backtrace()));
    }
  return result;
}

/// Whether these copies cannot follow the model, or not without a change to the
/// graphs of former passes.
bool replica_set::is_stale() const {
  std::vector<registered> now;
  list(model_, now);
  return now != seen_ || is_frozen_since(*model_, *copies_[0])
         || !std::ranges::equal(memory_of(*model_), memory_, is_same_memory)
         || would_overwrite(*model_, copies_, references_);
}

bool replica_set::refresh() {
  trainable_copies scope{*model_};
  if (!is_stale()) {
    detail::follow_model(*model_, pointers_to(copies_), devices_);
    return false;
  }
  std::vector<registered> now;
  list(model_, now);
  auto memory = memory_of(*model_);
  auto anew = make_copies();
  detail::follow_model(*model_, pointers_to(anew), devices_);
  auto references = references_to(*model_, anew);
  // Nothing throws from here on.
  copies_ = std::move(anew);
  seen_ = std::move(now);
  memory_ = std::move(memory);
  references_ = std::move(references);
  return true;
}

} // namespace syncnorm::nn
