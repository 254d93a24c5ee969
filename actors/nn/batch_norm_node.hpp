#pragma once

// The backward pass of batch norm as one node of libtorch's graph, for one
// copy or for all copies of a data-parallel graph together.

#include "actors/nn/backward_part.hpp"
#include "actors/nn/closable.hpp"
#include "actors/nn/graph_node.hpp"
#include "actors/nn/participant.hpp"

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <string>
#include <vector>

namespace syncnorm::nn::detail {

/// Input r of the node is the gradient of copy r's output; outputs 3r, 3r + 1
/// and 3r + 2 are the gradients of its x, weight and bias. In a data-parallel
/// graph a `copy_node` leads to each input.
///
/// The engine runs later operations first. Among a copy's operations, the node
/// has the place that the call had on the first part's thread, whichever thread
/// makes the node: else the order in which gradients of one tensor are added,
/// and so their last bits, would depend on which copy came first.
///
/// With several parts, on any mix of devices, nothing waits for another copy:
/// the sums over the copies are added right here. Nor does anything wait for a
/// device, unless some parts are on CPUs and others are not.
///
/// With one part and a seat, the sums are exchanged by messages, on the thread
/// that runs the backward pass; for a part on a device, an `exchange_node` does
/// that: output 0 leads to it, and in passes for second derivatives output 3 is
/// the gradient of x.
///
/// Several threads may run passes backward through the node at once. Once a
/// pass that does not keep the graph has ended, no other begins, and the last
/// one to end lets go of what was saved. With a seat, which one thread uses at
/// a time, a pass that comes between the halves of another one's round is
/// refused.
class batch_norm_node final : public torch::autograd::Node {
public:
  /// @param parts one, or those of all copies in the order of their ids. The
  ///              node takes their edges. Their statistics may be set later; a
  ///              backward pass before that is refused.
  /// @param seat  for a copy whose graph is its own; else null.
  batch_norm_node(std::vector<saved_part_ptr> parts, participant_ptr seat);

  torch::autograd::variable_list
  apply(torch::autograd::variable_list&& grads) override;

  void release_variables() override;

  std::string name() const override {
    return "SynchronizedBatchNormBackward";
  }

private:
  class pass;

  [[nodiscard]] std::vector<backward_part>
  unpack_all(const torch::autograd::variable_list& grads) const;
  torch::autograd::variable_list
  run_kernels(const torch::autograd::variable_list& grads);
  torch::autograd::variable_list
  run_differentiable(const torch::autograd::variable_list& grads);
  [[nodiscard]] at::Tensor
  total_sums_of(const std::vector<backward_part>& parts) const;

  /// Lets go of what the parts have saved.
  void clear();

  std::vector<saved_part_ptr> parts_;
  participant_ptr seat_;
  /// The node's passes; closed by the first that does not keep the graph.
  closable uses_;
  /// For an `exchange_node`. Null: this node does it all.
  std::shared_ptr<backward_part> handed_over_;
};

/// Whether any of the parts leads to something that requires a gradient.
[[nodiscard]] bool any_edge(const std::vector<saved_part_ptr>& parts);

} // namespace syncnorm::nn::detail
