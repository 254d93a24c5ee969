#pragma once

// One copy's share of a backward pass, by the kernels, where its tensors are.

#include "actors/nn/participant.hpp"
#include "syncnorm/moments.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace syncnorm::nn::detail {

/// The normalizing constants of a call: the same numbers for all copies, on the
/// device of each.
struct saved_statistics {
  /// C elements each, of the parameters' dtype.
  at::Tensor mean;
  at::Tensor inv_std;
  /// Elements of each channel over all copies.
  std::int64_t count = 0;
  /// Which of the master's passes the call was.
  std::uint64_t pass = 0;
  double eps = 0;
  eps_mode mode = eps_mode::plus;
  /// 1 where the variance counts, 0 where it was clamped; undefined: 1.
  at::Tensor unclamped;
  /// Evaluation: mean and inv_std do not depend on x.
  bool constant = false;
};

/// What one copy leaves in the graph for its backward pass.
struct saved_part {
  /// The layer's kind and path, for error texts.
  std::string layer;
  torch::autograd::SavedVariable x;
  torch::autograd::SavedVariable weight;
  bool has_weight = false;
  bool has_bias = false;
  saved_statistics statistics;
  /// Whether the statistics are set: in a data-parallel graph, the copy's
  /// thread sets them, when others may already have the node.
  std::atomic<bool> has_statistics = false;
  /// Whether the forward pass that the call belongs to is over; null: unknown.
  std::shared_ptr<const std::atomic<bool>> pass_is_over;
  /// A copy without a graph of the call's round, or -1.
  std::int64_t copy_without_graph = -1;
  /// The stream of the forward pass; nothing on a CPU.
  std::optional<c10::Stream> stream;
  /// Gradient edges of x, weight and bias, in this order, until a node takes
  /// them, which alone may hold them: see `make_node`.
  torch::autograd::edge_list edges;
  /// The call's place among the operations of the copy's thread: the gradient
  /// of a later operation comes first.
  std::uint64_t sequence_nr = 0;
  /// A tensor with memory for one element and the output's shape, dtype and
  /// device: the output itself, through its history, would own what is saved
  /// here.
  at::Tensor like_y;
};

/// Refuses a backward pass while copies of a data-parallel graph are in their
/// forward pass: what they will add is missing, and their passes would race.
void require_forward_is_over(const saved_part& part);

/// Refuses a backward pass in which another copy cannot take part: it would be
/// waited for until the deadline.
void require_graphs_of_all(const saved_part& part);

using saved_part_ptr = std::shared_ptr<saved_part>;

/// What is computed from a `saved_part`.
struct backward_part {
  at::Tensor x;
  at::Tensor dy;
  at::Tensor weight;
  bool has_bias = false;
  saved_statistics statistics;
  /// sum_dy and sum_dy_xmu: 2 x C.
  at::Tensor sums;
  /// C elements each, if there is a weight or bias, respectively.
  at::Tensor weight_grad;
  at::Tensor bias_grad;
  at::Tensor dx;
};

/// Makes what is to be reduced: x, weight and dy (zero if there is none).
[[nodiscard]] backward_part unpack(const saved_part& saved,
                                   const at::Tensor& dy);

/// While one of these lives, the current stream of each device is that of the
/// forward pass there, which owns the memory of what was saved. It begins
/// behind the streams on which the gradients came (those that were current and
/// the devices' default ones), and these go on behind it. Does nothing on CPUs.
class forward_streams {
public:
  explicit forward_streams(const std::vector<saved_part_ptr>& parts);
  forward_streams(const forward_streams&) = delete;
  forward_streams& operator=(const forward_streams&) = delete;
  ~forward_streams();

private:
  struct entry {
    c10::Stream forward;
    std::vector<c10::Stream> others;
  };

  [[nodiscard]] entry& entry_of(const c10::Stream& forward);

  std::vector<entry> entries_;
  std::optional<c10::MultiStreamGuard> guard_;
};

/// Sets sums and gradients of weight and bias of this copy. `dy` gets the
/// layout of `x`.
/// @param split whether to use more than the calling thread on a CPU.
void reduce(backward_part& part, bool split = true);

/// sum_dy and sum_dy_xmu of all copies for this one: on its device, of its
/// parameters' dtype, cleared where the variance was clamped. 2 x C.
[[nodiscard]] at::Tensor totals_for(const backward_part& part,
                                    const at::Tensor& sums);

/// Sets dx.
/// @param totals as `totals_for` returns them.
void finish(backward_part& part, const at::Tensor& totals, bool split = true);

} // namespace syncnorm::nn::detail
