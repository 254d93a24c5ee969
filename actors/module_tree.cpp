#include "syncnorm/detail/module_tree.hpp"

#include "syncnorm/error.hpp"

#include <fmt/format.h>

namespace syncnorm::detail {

namespace {

constexpr std::string_view replication = "execute_replication_callbacks";

std::string place(const std::string& path) {
  return path.empty() ? "the root" : path;
}

[[noreturn]] void refuse(const std::string& text) {
  throw error{errc::invalid_argument, text};
}

[[noreturn]] void differ(std::size_t copy, const std::string& path,
                         const std::string& expected,
                         const std::string& found) {
  refuse(fmt::format("{}: copy {} differs from copy 0 at {}: expected {}, "
                     "found {}",
                     replication, copy, place(path), expected, found));
}

std::string list(const std::vector<std::string>& children) {
  if (children.empty())
    return "no children";
  return fmt::format("{} ({})",
                     children.size() == 1
                         ? std::string{"1 child"}
                         : fmt::format("{} children", children.size()),
                     fmt::join(children, ", "));
}

std::string sharing(const module_list& tree, std::size_t i) {
  auto first = tree[i].first_seen;
  return first == i ? "a module of its own"
                    : "the module at " + place(tree[first].path);
}

void compare(const module_list& expected, const module_list& found,
             std::size_t copy) {
  // Lists of the same shape up to a place agree in what comes next, so neither
  // ends before a difference is found.
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& a = expected[i];
    const auto& b = found[i];
    if (a.kind != b.kind)
      differ(copy, a.path, a.kind, b.kind);
    if (a.children != b.children)
      differ(copy, a.path, list(a.children), list(b.children));
    if (a.first_seen != b.first_seen)
      differ(copy, a.path, sharing(expected, i), sharing(found, i));
  }
}

} // namespace

void throw_published_twice(const std::string& path) {
  refuse(fmt::format("callback_context of {}: something was published before; "
                     "has the callback of copy 0 run twice?",
                     place(path)));
}

void throw_not_published(const std::string& path, bool other_type) {
  refuse(fmt::format("callback_context of {}: expected what copy 0 published, "
                     "found {}; is copy 0 of the same kind, and did its "
                     "callback run first?",
                     place(path),
                     other_type ? "a value of another type" : "nothing"));
}

void throw_null(std::string_view function, const std::string& what) {
  refuse(fmt::format("{}: {} is null", function, what));
}

void require_same_shape(std::span<const module_list> trees) {
  if (trees.empty())
    refuse(fmt::format("{}: expected 1 copy or more, got none", replication));
  for (std::size_t copy = 1; copy < trees.size(); ++copy)
    compare(trees[0], trees[copy], copy);
}

std::vector<module_handle> modules_of(std::span<const module_list> trees) {
  std::vector<module_handle> result;
  for (const auto& tree : trees)
    for (std::size_t i = 0; i < tree.size(); ++i)
      if (tree[i].first_seen == i)
        result.push_back(tree[i].module);
  return result;
}

void callback_log::require_new(const module_node& node,
                               std::size_t copy) const {
  auto i = copy_of_.find(node.module);
  if (i != copy_of_.end())
    refuse(fmt::format("{}: copies {} and {} share the sub-module {}: its "
                       "callback would run twice",
                       replication, i->second, copy, place(node.path)));
}

void callback_log::add(const module_node& node, std::size_t copy) {
  copy_of_.emplace(node.module, copy);
  modules_.push_back(node.module);
}

} // namespace syncnorm::detail
