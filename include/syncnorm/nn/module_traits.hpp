#pragma once

#include "syncnorm/replicate.hpp"

#include <torch/nn/module.h>

#include <concepts>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm {

namespace nn::detail {

/// The type's name; for a synchronized layer also what its copies must agree
/// in.
[[nodiscard]] std::string kind_of(const torch::nn::Module& m);

} // namespace nn::detail

/// How `execute_replication_callbacks`, `release_replicas` and `fail_replica`
/// walk libtorch's modules: children are the registered ones, and modules with
/// a callback derive from `replicable`. These functions take pointers to
/// `torch::nn::Module` or to types of your own, and module holders.
template <>
struct module_traits<torch::nn::Module> : replicable_calls<torch::nn::Module> {
  /// The type's name; for a synchronized layer also how many channels it has,
  /// and whether it has weights and running statistics.
  static std::string kind(const torch::nn::Module& m) {
    return nn::detail::kind_of(m);
  }

  /// The named children that are there.
  static std::vector<std::pair<std::string, torch::nn::Module*>>
  children(torch::nn::Module& m) {
    std::vector<std::pair<std::string, torch::nn::Module*>> result;
    for (const auto& child : m.named_children())
      result.emplace_back(child.key(), child.value().get());
    return result;
  }
};

/// Your own modules are walked like libtorch's, because their children are
/// modules of libtorch's.
template <std::derived_from<torch::nn::Module> Module>
struct module_base<Module> {
  /// The base of all modules.
  using type = torch::nn::Module;
};

} // namespace syncnorm
