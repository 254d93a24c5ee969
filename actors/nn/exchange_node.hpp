#pragma once

#include "actors/nn/backward_part.hpp"

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <string>

namespace syncnorm::nn::detail {

/// The second half of the backward pass of a copy on a device, with a graph of
/// its own: it waits for the other copies.
///
/// libtorch has one thread for the backward passes of all graphs on a device.
/// Copies that share the device would wait there for each other for ever. So
/// the first half, `batch_norm_node`, runs on that thread, enqueues, sends and
/// returns a token, a tensor in host memory: the node that it leads to runs on
/// the thread that called backward, which is the copy's own. As the first
/// halves wait for nobody, the order of the second halves of a net's branches
/// does not matter.
class exchange_node final : public torch::autograd::Node {
public:
  exchange_node(saved_part_ptr saved, torch::autograd::Edge to_x,
                participant_ptr seat,
                std::shared_ptr<backward_part> from_first_half);

  /// The gradient of this node's one input.
  [[nodiscard]] static at::Tensor token();

  torch::autograd::variable_list
  apply(torch::autograd::variable_list&& grads) override;

  std::string name() const override {
    return "SynchronizedBatchNormExchangeBackward";
  }

private:
  saved_part_ptr saved_;
  participant_ptr seat_;
  /// What `batch_norm_node` hands over.
  std::shared_ptr<backward_part> handed_over_;
};

} // namespace syncnorm::nn::detail
