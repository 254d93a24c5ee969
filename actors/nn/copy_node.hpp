#pragma once

#include "actors/nn/backward_part.hpp"

#include <torch/csrc/autograd/function.h>

#include <string>
#include <utility>

namespace syncnorm::nn::detail {

/// The node that made one copy's output, in a graph where all copies share a
/// `batch_norm_node`: hands the gradient on to the copy's input there.
///
/// libtorch keeps a tensor's hooks in the node that made it, without a lock.
/// Copies that registered theirs in the one node of all, each in its forward
/// pass on its own thread, would race.
class copy_node final : public torch::autograd::Node {
public:
  /// Called on the copy's thread, whose place, stream and stack trace the node
  /// keeps. The node's edge is added later, before anybody uses it.
  explicit copy_node(const saved_part& part) : Node{part.sequence_nr} {
    add_input_metadata(part.like_y);
  }

  torch::autograd::variable_list
  apply(torch::autograd::variable_list&& grads) override {
    return std::move(grads);
  }

  std::string name() const override {
    return "SynchronizedBatchNormCopyBackward";
  }
};

} // namespace syncnorm::nn::detail
