#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

// What `execute_replication_callbacks` knows of a tree of modules, whatever
// their type.

namespace syncnorm::detail {

/// A place in a tree of modules.
struct module_node {
  /// For example `"features.3"`; empty for the root.
  std::string path;
  /// The module's kind.
  std::string kind;
  /// The names of its children, in order.
  std::vector<std::string> children;
  void* module = nullptr;
  /// The first place, in the order of the walk, where the same module stands.
  std::size_t first_seen = 0;
};

/// The places of a tree, parents before their children.
using module_list = std::vector<module_node>;

/// @throws error `invalid_argument`.
[[noreturn]] void throw_published_twice(const std::string& path);
[[noreturn]] void throw_not_published(const std::string& path, bool other_type);
/// @param what is null, for example "copy 1".
[[noreturn]] void throw_null(std::string_view function,
                             const std::string& what);

/// Returns if all trees have the shape of the first.
/// @throws error `invalid_argument` that names the first difference, or that
///         there is no tree.
void require_same_shape(std::span<const module_list> trees);

/// Sees to it that no module's callback runs twice.
class callback_log {
public:
  /// @throws error `invalid_argument` if the callback of that module has run.
  void require_new(const module_node& node, std::size_t copy) const;

  void add(const module_node& node, std::size_t copy);

  /// Those whose callback has run, in that order.
  [[nodiscard]] const std::vector<void*>& modules() const noexcept {
    return modules_;
  }

private:
  std::vector<void*> modules_;
  std::unordered_map<const void*, std::size_t> copy_of_;
};

/// Appends the places of the tree below `m`, a child of the place `parent`
/// called `name`.
template <class Module, class Traits>
void list_tree(std::string_view function, Module& m, std::string path,
               module_list& out,
               std::unordered_map<const void*, std::size_t>& seen) {
  auto here = out.size();
  auto first_seen = seen.try_emplace(&m, here).first->second;
  auto children = Traits::children(m);
  auto& node = out.emplace_back();
  node = {path, Traits::kind(m), {}, &m, first_seen};
  for (auto& [name, child] : children)
    node.children.push_back(name);
  if (first_seen != here)
    return;
  for (auto& [name, child] : children) {
    auto child_path = path;
    if (!path.empty())
      child_path += '.';
    child_path += name;
    if (child == nullptr)
      throw_null(function, "the sub-module " + child_path);
    list_tree<Module, Traits>(function, *child, child_path, out, seen);
  }
}

template <class Module, class Traits>
module_list list_tree(std::string_view function, Module& root) {
  module_list result;
  std::unordered_map<const void*, std::size_t> seen;
  list_tree<Module, Traits>(function, root, {}, result, seen);
  return result;
}

template <class Module, class Traits>
std::vector<module_list> list_trees(std::string_view function,
                                    std::span<Module* const> roots) {
  std::vector<module_list> result;
  for (auto* root : roots) {
    if (root == nullptr)
      throw_null(function, "copy " + std::to_string(result.size()));
    result.push_back(list_tree<Module, Traits>(function, *root));
  }
  return result;
}

/// Returns the modules of each tree in order, each once.
template <class Module>
std::vector<Module*> modules_of(std::span<const module_list> trees) {
  std::vector<Module*> result;
  for (const auto& tree : trees)
    for (std::size_t i = 0; i < tree.size(); ++i)
      if (tree[i].first_seen == i)
        result.push_back(static_cast<Module*>(tree[i].module));
  return result;
}

/// Calls `f` with each of `modules`, also when it has thrown for one.
/// @returns the first exception, or null.
template <class Module, class F>
std::exception_ptr call_on_all(const std::vector<Module*>& modules, F f) {
  std::exception_ptr first;
  for (auto* module : modules)
    try {
      f(module);
    } catch (...) {
      if (!first)
        first = std::current_exception();
    }
  return first;
}

/// Returns `m` as a `Target`, or null if it is none.
template <class Target, class Module>
Target* cast_to([[maybe_unused]] Module& m) {
  if constexpr (std::is_polymorphic_v<Module>)
    return dynamic_cast<Target*>(&m);
  else
    return nullptr;
}

template <class Module>
std::span<Module* const> view_of(const std::vector<Module*>& pointers) {
  return pointers;
}

} // namespace syncnorm::detail
