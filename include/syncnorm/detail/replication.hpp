#pragma once

#include "syncnorm/detail/module_tree.hpp"
#include "syncnorm/module_traits.hpp"
#include "syncnorm/replicable.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

// What the functions of `replicate.hpp` do with the trees of all copies.

namespace syncnorm::detail {

/// The addresses of what the elements of `owners` point to.
template <class Owners>
auto pointers_to(const Owners& owners) {
  using root = std::remove_pointer_t<decltype(pointer_to(*owners.begin()))>;
  std::vector<typename module_base<root>::type*> result;
  result.reserve(std::distance(owners.begin(), owners.end()));
  for (const auto& owner : owners)
    result.push_back(pointer_to(owner));
  return result;
}

inline void release(const module_handle& m) {
  m.calls->release(m.address);
}

template <class Module>
void execute_callbacks(std::span<Module* const> copies) {
  auto trees =
      list_trees<module_traits>("execute_replication_callbacks", copies);
  require_same_shape(trees);
  std::vector<callback_context> contexts;
  for (const auto& node : trees[0])
    contexts.emplace_back(node.path, static_cast<std::int64_t>(trees.size()));
  callback_log log;
  try {
    for (std::size_t copy = 0; copy < trees.size(); ++copy)
      for (std::size_t i = 0; i < contexts.size(); ++i) {
        auto& node = trees[copy][i];
        if (node.first_seen != i)
          continue;
        log.require_new(node, copy);
        if (node.module.calls->replicate(node.module.address, contexts[i],
                                         static_cast<std::int64_t>(copy)))
          log.add(node, copy);
      }
  } catch (...) {
    // The caller gets what the callback threw, not what a release throws.
    std::ignore = call_on_all(log.modules(), release);
    throw;
  }
}

/// Calls `f` with every module of `roots`, the arguments of `function`.
/// @throws the first exception of `f`, after `f` was called with all modules.
template <class Module, class F>
void call_on_trees(std::string_view function, std::span<Module* const> roots,
                   F f) {
  auto trees = list_trees<module_traits>(function, roots);
  if (auto thrown = call_on_all(modules_of(trees), f))
    std::rethrow_exception(thrown);
}

} // namespace syncnorm::detail
