#include "actors/nn/exchange_node.hpp"

#include "actors/nn/exchange_sums.hpp"
#include "actors/nn/telling_others.hpp"

#include <ATen/ATen.h>

#include <utility>

namespace syncnorm::nn::detail {

using torch::autograd::variable_list;

exchange_node::exchange_node(saved_part_ptr saved, torch::autograd::Edge to_x,
                             participant_ptr seat,
                             std::shared_ptr<backward_part> from_first_half)
    : saved_{std::move(saved)},
      seat_{std::move(seat)},
      handed_over_{std::move(from_first_half)} {
  add_next_edge(std::move(to_x));
  add_input_metadata(token());
}

at::Tensor exchange_node::token() {
  return at::zeros({1}, at::kFloat);
}

variable_list exchange_node::apply(variable_list&& grads) {
  // With second derivatives the first half has done it all.
  if (!grads[0].defined())
    return {at::Tensor{}};
  auto part = std::exchange(*handed_over_, {});
  return telling_others(seat_, [&]() -> variable_list {
    forward_streams here{{saved_}};
    auto sums = end_exchange(*seat_, part);
    if (task_should_compute_output(0))
      finish(part, totals_for(part, sums));
    return {part.dx};
  });
}

} // namespace syncnorm::nn::detail
