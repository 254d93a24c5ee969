#pragma once

// A valid set of arguments for every operation; a test breaks one of them.

#include "syncnorm/batch_norm.hpp"
#include "tests/kernels/cases.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace syncnorm::test {

/// The address `bytes` bytes behind p.
template <class T>
T* moved(T* p, std::ptrdiff_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(p)
                              + std::uintptr_t(bytes));
}

/// Valid arguments for all operations. A test breaks one of them.
struct arguments {
  static constexpr std::int64_t count = 5;

  tensor_layout layout{dtype::float32, {2, count, 6}, {}, 30, {}};
  tensor x_memory{layout, random_values(layout.shape, 1)};
  tensor y_memory{layout};
  tensor residual_memory{layout};
  channel_array in_memory{dtype::float32, random_channels(count, 2, 1, 2)};
  std::vector<double> in_values{in_memory.get()};
  channel_array first_memory{dtype::float32, count};
  channel_array second_memory{dtype::float32, count};
  channel_array third_memory{dtype::float32, count};
  channel_array fourth_memory{dtype::float32, count};
  guarded_memory mask_memory{64};
  scratch_memory scratch_memory_{4096};

  execution run;
  const_tensor_view x{x_memory.view()};
  const_tensor_view dy{x_memory.view()};
  tensor_view y{y_memory.view()};
  void* in = in_memory.data();
  void* first = first_memory.data();
  void* second = second_memory.data();
  workspace scratch{scratch_memory_.get()};
  moments_view moments{7, first, second, count, dtype::float32, {}};
  const_moments_view part{3, in, in, count, dtype::float32, {}};
  channel_parameters parameters{in, in, in, in};
  running_statistics statistics{in, in};
  fused_tail tail{nullptr, true,
                  reinterpret_cast<std::uint8_t*>(mask_memory.data())};
  const std::uint8_t* mask = tail.mask;
  backward_sums sums{first, second, third_memory.data(), fourth_memory.data()};
  total_sums totals{in, in, 12};
  void* residual_grad = residual_memory.view().data();
  finalize_options options;
  running_view running{third_memory.data(), fourth_memory.data()};
  double eps = 1e-5;
  eps_mode mode = eps_mode::plus;

  [[nodiscard]] bool untouched() const {
    return y_memory.untouched() && residual_memory.untouched()
           && first_memory.untouched() && second_memory.untouched()
           && third_memory.untouched() && fourth_memory.untouched()
           && mask_memory.untouched() && scratch_memory_.untouched()
           && in_memory.get() == in_values && moments.count == 7;
  }
};

} // namespace syncnorm::test
