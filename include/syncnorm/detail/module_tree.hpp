#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// What `execute_replication_callbacks` knows about a tree of modules, whatever
// their types.

namespace syncnorm {

class callback_context;

} // namespace syncnorm

namespace syncnorm::detail {

/// What `module_traits` do with a module of one type.
struct module_calls {
  bool (*replicate)(void* module, callback_context& context,
                    std::int64_t copy_id);
  void (*release)(void* module);
  void (*fail)(void* module, const std::string& why);
};

template <class Traits, class Module>
inline constexpr module_calls calls_of{
    [](void* m, callback_context& context, std::int64_t copy_id) {
      return Traits::replicate(*static_cast<Module*>(m), context, copy_id);
    },
    [](void* m) { Traits::release(*static_cast<Module*>(m)); },
    [](void* m, const std::string& why) {
      Traits::fail(*static_cast<Module*>(m), why);
    }};

/// A module. Its first member may be another module at the same address.
struct module_handle {
  void* address = nullptr;
  const module_calls* calls = nullptr;

  auto operator<=>(const module_handle&) const = default;
};

/// A place in a tree of modules.
struct module_node {
  /// For example `"features.3"`; empty for the root.
  std::string path;
  /// The module's kind.
  std::string kind;
  /// The names of its children, in order.
  std::vector<std::string> children;
  module_handle module{};
  /// The first place, in walk order, where the same module appears.
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
/// @throws error `invalid_argument` that names the first difference, or says
///         that there is no tree.
void require_same_shape(std::span<const module_list> trees);

/// Ensures that no module's callback runs twice.
class callback_log {
public:
  /// @throws error `invalid_argument` if the callback of that module has run.
  void require_new(const module_node& node, std::size_t copy) const;

  void add(const module_node& node, std::size_t copy);

  /// The modules whose callback has run, in that order.
  [[nodiscard]] const std::vector<module_handle>& modules() const noexcept {
    return modules_;
  }

private:
  std::vector<module_handle> modules_;
  std::map<module_handle, std::size_t> copy_of_;
};

/// Appends the places of the tree below `m`, a child of the place `parent`
/// called `name`.
template <template <class> class Traits, class Module>
void list_tree(std::string_view function, Module& m, std::string path,
               module_list& out, std::map<module_handle, std::size_t>& seen) {
  using traits = Traits<Module>;
  auto here = out.size();
  module_handle module{&m, &calls_of<traits, Module>};
  auto first_seen = seen.try_emplace(module, here).first->second;
  auto children = traits::children(m);
  auto& node = out.emplace_back();
  node = {path, traits::kind(m), {}, module, first_seen};
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
    list_tree<Traits>(function, *child, child_path, out, seen);
  }
}

template <template <class> class Traits, class Module>
std::vector<module_list> list_trees(std::string_view function,
                                    std::span<Module* const> roots) {
  std::vector<module_list> result;
  for (auto* root : roots) {
    if (root == nullptr)
      throw_null(function, "copy " + std::to_string(result.size()));
    std::map<module_handle, std::size_t> seen;
    list_tree<Traits>(function, *root, {}, result.emplace_back(), seen);
  }
  return result;
}

/// Returns the modules of each tree in order, each once.
[[nodiscard]] std::vector<module_handle>
modules_of(std::span<const module_list> trees);

/// Calls `f` with each of `modules`, even after it has thrown for one.
/// @returns the first exception, or null.
template <class F>
std::exception_ptr call_on_all(const std::vector<module_handle>& modules, F f) {
  std::exception_ptr first;
  for (const auto& module : modules)
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
