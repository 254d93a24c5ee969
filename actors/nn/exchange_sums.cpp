#include "actors/nn/exchange_sums.hpp"

#include "actors/nn/tensor_bridge.hpp"
#include "actors/nn/torch_devices.hpp"

#include <ATen/ATen.h>

#include <utility>

namespace syncnorm::nn::detail {

void begin_exchange(participant& seat, const at::Tensor& sums,
                    const backward_part& of) {
  const auto& x = of.x;
  auto type = *to_dtype(x.scalar_type());
  round_request mine;
  mine.backward = true;
  mine.pass = of.statistics.pass;
  mine.type = type;
  mine.channels = x.size(1);
  mine.count = x.numel() / x.size(1);
  if (x.is_cpu())
    mine.values = to_doubles(sums);
  else
    mine.device_values =
        to_array(sums.to(to_scalar_type(statistics_type(type))).contiguous());
  seat.begin(std::move(mine));
}

at::Tensor end_exchange(participant& seat, const backward_part& of) {
  const auto& x = of.x;
  auto all = seat.end();
  if (x.is_cpu())
    return from_doubles(all.values, at::kDouble).view({2, -1});
  const auto& values = all.device_values;
  return to_tensor(values, x.options()
                               .dtype(to_scalar_type(values.type()))
                               .requires_grad(false))
      .view({2, -1});
}

at::Tensor exchange_sums(participant& seat, const at::Tensor& sums,
                         const backward_part& of) {
  begin_exchange(seat, sums, of);
  return end_exchange(seat, of);
}

} // namespace syncnorm::nn::detail
