#pragma once

#include "syncnorm/replicate.hpp"

#include <torch/nn/module.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace syncnorm {

/// How `execute_replication_callbacks`, `release_replicas` and `fail_replica`
/// walk libtorch's modules: children are those that are registered; modules
/// with a callback derive from `replicable`. They take pointers to
/// `torch::nn::Module`, to types of your own, and module holders.
template <>
struct module_traits<torch::nn::Module> {
  /// The type's name, for error texts.
  static std::string kind(const torch::nn::Module& m) {
    return m.name();
  }

  /// The named children that are there.
  static std::vector<std::pair<std::string, torch::nn::Module*>>
  children(torch::nn::Module& m) {
    std::vector<std::pair<std::string, torch::nn::Module*>> result;
    for (const auto& child : m.named_children())
      result.emplace_back(child.key(), child.value().get());
    return result;
  }

  /// Runs the replication callback, if `m` has one; returns whether.
  static bool replicate(torch::nn::Module& m, callback_context& context,
                        std::int64_t copy_id) {
    auto* listener = dynamic_cast<replicable*>(&m);
    if (listener != nullptr)
      listener->on_data_parallel_replicate(context, copy_id);
    return listener != nullptr;
  }

  /// Undoes `replicate`.
  static void release(torch::nn::Module& m) {
    if (auto* listener = dynamic_cast<replicable*>(&m))
      listener->on_data_parallel_release();
  }

  /// Tells `m` that its copy cannot go on.
  static void fail(torch::nn::Module& m, const std::string& why) {
    if (auto* listener = dynamic_cast<replicable*>(&m))
      listener->on_data_parallel_failure(why);
  }
};

/// Your own modules are walked as libtorch's, which is what their children are.
template <std::derived_from<torch::nn::Module> Module>
struct module_base<Module> {
  /// What all modules are.
  using type = torch::nn::Module;
};

} // namespace syncnorm
