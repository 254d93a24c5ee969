#include "syncnorm/nn/convert_model.hpp"

#include "syncnorm/nn/replaceable_children.hpp"
#include "syncnorm/nn/synchronized_batch_norm.hpp"

#include <fmt/format.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <map>
#include <set>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace syncnorm::nn {

namespace {

using torch::nn::Module;
using module_ptr = std::shared_ptr<Module>;

/// A libtorch batch norm below the root.
struct found_norm {
  module_ptr norm;
  std::string path;
  /// Owners that are known and will be replaced.
  long owners = 0;
  /// Whether a parent takes care of its members itself.
  bool replaceable = false;
  /// Whether a parent has members that nobody replaces: it is neither a
  /// libtorch container nor one that takes care of them.
  bool fixed = false;
};

/// A parent and the name of a child that is a batch norm.
struct place {
  Module* parent;
  std::string name;
  Module* norm;
};

template <class Impl>
bool is_exactly(const Module& m) {
  return typeid(m) == typeid(Impl);
}

bool is_plain_norm(const Module& m) {
  return is_exactly<torch::nn::BatchNorm1dImpl>(m)
         || is_exactly<torch::nn::BatchNorm2dImpl>(m)
         || is_exactly<torch::nn::BatchNorm3dImpl>(m);
}

/// Calls `f` with each element that a container keeps beside the registry: an
/// `AnyModule&` or a `module_ptr&`.
template <class F>
void for_each_element(Module& m, F f) {
  if (auto* sequential = dynamic_cast<torch::nn::SequentialImpl*>(&m))
    for (auto& element : *sequential)
      f(element);
  else if (auto* list = dynamic_cast<torch::nn::ModuleListImpl*>(&m))
    for (auto& element : *list)
      f(element);
  else if (auto* dict = dynamic_cast<torch::nn::ModuleDictImpl*>(&m))
    for (auto& item : *dict)
      f(item.value());
}

bool is_container(const Module& m) {
  return dynamic_cast<const torch::nn::SequentialImpl*>(&m) != nullptr
         || dynamic_cast<const torch::nn::ModuleListImpl*>(&m) != nullptr
         || dynamic_cast<const torch::nn::ModuleDictImpl*>(&m) != nullptr;
}

Module* address_of(const torch::nn::AnyModule& x) {
  return x.is_empty() ? nullptr : x.ptr().get();
}

Module* address_of(const module_ptr& x) {
  return x.get();
}

/// A walk over the tree that changes nothing.
class survey {
public:
  explicit survey(Module& root) {
    walk(root, "");
  }

  [[nodiscard]] const std::vector<place>& places() const noexcept {
    return places_;
  }

  [[nodiscard]] const std::map<Module*, found_norm>& norms() const noexcept {
    return norms_;
  }

  [[nodiscard]] const std::set<Module*>& parents() const noexcept {
    return seen_;
  }

private:
  void walk(Module& m, const std::string& path) {
    if (!seen_.insert(&m).second)
      return;
    for (const auto& child : m.named_children()) {
      auto here = path.empty() ? child.key() : path + '.' + child.key();
      if (is_plain_norm(*child.value()))
        add(m, child.key(), here, child.value());
      else
        walk(*child.value(), here);
    }
    for_each_element(m, [&](auto& element) {
      auto i = norms_.find(address_of(element));
      if (i != norms_.end())
        ++i->second.owners;
    });
  }

  void add(Module& parent, const std::string& name, const std::string& path,
           const module_ptr& norm) {
    auto& entry = norms_[norm.get()];
    if (!entry.norm) {
      entry.norm = norm;
      entry.path = path;
    }
    ++entry.owners;
    if (dynamic_cast<ReplaceableChildren*>(&parent) != nullptr)
      entry.replaceable = true;
    else if (!is_container(parent))
      entry.fixed = true;
    places_.push_back({&parent, name, norm.get()});
  }

  std::vector<place> places_;
  std::map<Module*, found_norm> norms_;
  std::set<Module*> seen_;
};

void require_no_other_owner(const survey& found) {
  for (const auto& [address, entry] : found.norms()) {
    // One of the owners is the survey.
    auto others = entry.norm.use_count() - 1 - entry.owners;
    if (others > 0 && (!entry.replaceable || entry.fixed))
      throw error{
          errc::invalid_argument,
          fmt::format(
              "convert_model: {}: expected no owner besides the module "
              "registry and libtorch's containers, found {} more, such "
              "as a typed member, which would keep the plain layer: "
              "write the member as SynchronizedBatchNorm1d, 2d or 3d, or "
              "derive its "
              "module from ReplaceableChildren, or, if it is a variable "
              "of yours, set ConvertOptions::allow_other_owners",
              entry.path, others)};
  }
}

[[noreturn]] void refuse(const std::string& path, const char* expected,
                         const char* got) {
  throw error{errc::invalid_argument,
              fmt::format("convert_model: {}: expected {}, got {}",
                          path.empty() ? "model" : path, expected, got)};
}

/// The options of a layer, from the tensors that it has: its own options may
/// have been changed since.
template <class Old>
SynchronizedBatchNormOptions options_of(const Old& plain,
                                        const std::string& path) {
  auto affine = plain.weight.defined();
  if (plain.bias.defined() != affine)
    refuse(path, "a weight and a bias or neither", "one of them");
  auto tracked = plain.running_mean.defined();
  if (plain.running_var.defined() != tracked
      || plain.num_batches_tracked.defined() != tracked)
    refuse(path, "running statistics with their counter or none of them",
           "some of them");
  // Such a layer would use the batch's statistics in evaluation too, and yet
  // write to the running ones.
  if (tracked && !plain.options.track_running_stats())
    refuse(path, "track_running_stats as the layer was made with, true",
           "false, and running statistics");
  SynchronizedBatchNormOptions result{plain.options};
  return result.affine(affine).track_running_stats(tracked);
}

template <class New, class Old>
std::shared_ptr<New> make_from(const Module& m, const std::string& path) {
  const auto& plain = dynamic_cast<const Old&>(m);
  auto result = std::make_shared<New>(options_of(plain, path));
  result->adopt(plain.weight, plain.bias, plain.running_mean, plain.running_var,
                plain.num_batches_tracked);
  result->train(plain.is_training());
  return result;
}

/// Calls `use` with the synchronized layer for `m` as a pointer to its own
/// type.
template <class F>
void with_synchronized(const Module& m, const std::string& path, F use) {
  using namespace torch::nn;
  if (is_exactly<BatchNorm1dImpl>(m))
    use(make_from<SynchronizedBatchNorm1dImpl, BatchNorm1dImpl>(m, path));
  else if (is_exactly<BatchNorm2dImpl>(m))
    use(make_from<SynchronizedBatchNorm2dImpl, BatchNorm2dImpl>(m, path));
  else
    use(make_from<SynchronizedBatchNorm3dImpl, BatchNorm3dImpl>(m, path));
}

class conversion {
public:
  explicit conversion(const survey& found) : found_{found} {
    for (const auto& [address, entry] : found.norms())
      with_synchronized(*address, entry.path, [&, old = address](auto made) {
        as_module_[old] = made;
        as_any_[old] = torch::nn::AnyModule{made};
      });
  }

  void run() {
    for (auto* parent : found_.parents())
      for_each_element(*parent, [&](auto& element) { replace(element); });
    for (const auto& [parent, name, norm] : found_.places())
      parent->replace_module(name, as_module_.at(norm));
    for (const auto& [parent, name, norm] : found_.places())
      if (auto* listener = dynamic_cast<ReplaceableChildren*>(parent))
        listener->replace_child(name, as_module_.at(norm));
  }

private:
  void replace(torch::nn::AnyModule& element) {
    auto i = as_any_.find(address_of(element));
    if (i != as_any_.end())
      element = i->second;
  }

  void replace(module_ptr& element) {
    auto i = as_module_.find(element.get());
    if (i != as_module_.end())
      element = i->second;
  }

  const survey& found_;
  std::map<Module*, module_ptr> as_module_;
  std::map<Module*, torch::nn::AnyModule> as_any_;
};

} // namespace

std::shared_ptr<Module> convert_model(std::shared_ptr<Module> model,
                                      const ConvertOptions& options) {
  if (!model)
    throw error{errc::invalid_argument,
                "convert_model: model: expected a module, got null"};
  if (is_plain_norm(*model)) {
    module_ptr result;
    with_synchronized(*model, "", [&](auto made) { result = made; });
    return result;
  }
  survey found{*model};
  if (!options.allow_other_owners)
    require_no_other_owner(found);
  conversion{found}.run();
  return model;
}

} // namespace syncnorm::nn
