#pragma once

// The backward pass of batch norm as one node of libtorch's graph, for one
// copy or for all copies of a data-parallel graph together.

#include "actors/nn/graph_node.hpp"
#include "syncnorm/moments.hpp"
#include "syncnorm/nn/detail/participant.hpp"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace syncnorm::nn::detail {

/// What one copy leaves in the graph for its backward pass.
struct saved_part {
  torch::autograd::SavedVariable x;
  torch::autograd::SavedVariable weight;
  bool has_weight = false;
  /// Gradient edges of x, weight and bias, in this order.
  torch::autograd::edge_list edges;
  /// Shape, dtype and device of the output in a tensor of one element: the
  /// output itself would own, by its history, what is saved here.
  at::Tensor like_y;
};

using saved_part_ptr = std::shared_ptr<saved_part>;

/// The normalizing constants of a call, the same for all its copies.
struct saved_statistics {
  /// C elements each of the parameters' dtype.
  at::Tensor mean;
  at::Tensor inv_std;
  /// Elements of each channel over all copies.
  std::int64_t count = 0;
  double eps = 0;
  eps_mode mode = eps_mode::plus;
  /// 1 where the variance counts, 0 where it was clamped; undefined: 1.
  at::Tensor unclamped;
  /// Evaluation: mean and inv_std do not depend on x.
  bool constant = false;
};

/// Input r of the node is the gradient of copy r's output; outputs 3r, 3r + 1
/// and 3r + 2 are the gradients of its x, weight and bias.
///
/// With several parts nothing waits: the sums over the copies are added right
/// here. With one part and a seat, the sums are exchanged by messages, on the
/// thread that runs the backward pass.
class batch_norm_node final : public torch::autograd::Node {
public:
  /// @param parts one, or those of all copies in the order of their ids.
  /// @param seat  for a copy whose graph is its own; else null.
  batch_norm_node(std::vector<saved_part_ptr> parts, saved_statistics saved,
                  participant_ptr seat);

  torch::autograd::variable_list
  apply(torch::autograd::variable_list&& grads) override;

  void release_variables() override;

  std::string name() const override {
    return "SynchronizedBatchNormBackward";
  }

private:
  struct part_run;

  std::vector<part_run> unpack(const torch::autograd::variable_list& grads);
  torch::autograd::variable_list
  run_kernels(const torch::autograd::variable_list& grads);
  torch::autograd::variable_list
  run_differentiable(const torch::autograd::variable_list& grads);
  void reduce(part_run& part, bool split) const;
  void finish(part_run& part, const at::Tensor& sums, bool split) const;
  [[nodiscard]] at::Tensor total_sums_of(std::vector<part_run>& parts) const;

  std::vector<saved_part_ptr> parts_;
  saved_statistics saved_;
  participant_ptr seat_;
};

/// Whether any of the parts leads to something that requires a gradient.
[[nodiscard]] bool any_edge(const std::vector<saved_part_ptr>& parts);

} // namespace syncnorm::nn::detail
