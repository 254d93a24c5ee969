#include "actors/nn/model_keeper.hpp"

namespace syncnorm::nn::detail {

namespace {

using torch::nn::Module;

/// Calls `f` with each part, before the children of that part.
template <class F>
void for_each_part(Module& model, const std::string& path, const F& f) {
  for (const auto& child : model.named_children()) {
    auto here = path + '.' + child.key();
    f(*child.value(), here);
    for_each_part(*child.value(), here, f);
  }
}

template <class F>
void for_each_changed(
    const torch::OrderedDict<std::string, torch::Tensor>& before,
    const torch::OrderedDict<std::string, torch::Tensor>& now, const F& f) {
  for (const auto& entry : before)
    if (const auto* x = now.find(entry.key());
        x != nullptr && !x->is_same(entry.value()))
      f(*x, entry.value());
}

} // namespace

model_keeper::model_keeper(Module& model)
    : model_{model},
      parameters_{model.named_parameters()},
      buffers_{model.named_buffers()} {
  for_each_part(model, "", [&](const Module& part, const std::string& path) {
    training_.emplace_back(path, part.is_training());
  });
}

void model_keeper::restore() {
  for_each_changed(parameters_, model_.named_parameters(),
                   [](torch::Tensor x, const torch::Tensor& before) {
                     x.set_data(before.detach());
                     x.set_requires_grad(before.requires_grad());
                     x.mutable_grad() = before.grad();
                   });
  for_each_changed(buffers_, model_.named_buffers(),
                   [](torch::Tensor x, const torch::Tensor& before) {
                     x.set_data(before.detach());
                   });
  auto before = training_.begin();
  for_each_part(model_, "", [&](Module& part, const std::string& path) {
    if (before != training_.end() && before->first == path)
      part.train((before++)->second);
  });
}

} // namespace syncnorm::nn::detail
