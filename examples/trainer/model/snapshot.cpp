#include "trainer/model/snapshot.hpp"

#include "trainer/model/hash.hpp"
#include "trainer/model/rows.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace syncnorm::train {

namespace {

/// The buffers that are statistics, or those that count batches.
tensor_list buffers_of(const network& model, bool are_floating) {
  auto result = model.buffers();
  std::erase_if(result, [=](const torch::Tensor& x) {
    return x.is_floating_point() != are_floating;
  });
  return result;
}

torch::Tensor collect_as(torch::ScalarType type, const tensor_list& tensors) {
  auto row = torch::empty({count_values(tensors)}, type);
  collect(tensors, row);
  return row;
}

/// @param values of the row's type, as many as it has.
template <class T>
void copy_to(const torch::Tensor& row, std::span<const T> values) {
  std::ranges::copy(values, row.data_ptr<T>());
}

void copy_to(const torch::Tensor& row, const flat_array& values) {
  if (row.scalar_type() == torch::kFloat64)
    copy_to(row, values.f64.view());
  else
    copy_to(row, values.f32.view());
}

void spread_values(const flat_array& values, torch::ScalarType type,
                   const tensor_list& tensors) {
  auto row = torch::empty({count_values(tensors)}, type);
  copy_to(row, values);
  spread(row, tensors);
}

} // namespace

model_state snapshot_of(const network& model, const torch::Tensor& velocity) {
  auto type = velocity.scalar_type();
  model_state result;
  result.fingerprint = fingerprint_of(model);
  result.weights = to_flat(collect_as(type, model.parameters()));
  result.velocity = to_flat(velocity);
  result.statistics = to_flat(collect_as(type, buffers_of(model, true)));
  auto counts = collect_as(torch::kInt64, buffers_of(model, false));
  const auto* first = counts.data_ptr<std::int64_t>();
  result.batches =
      int64_array{std::vector<std::int64_t>(first, first + counts.numel())};
  return result;
}

void restore(const model_state& state, network& model,
             const torch::Tensor& velocity) {
  auto type = velocity.scalar_type();
  auto statistics = buffers_of(model, true);
  auto batches = buffers_of(model, false);
  auto size_of = [](const tensor_list& x) {
    return static_cast<std::size_t>(count_values(x));
  };
  require_fit(state, {fingerprint_of(model), type == torch::kFloat64,
                      size_of(model.parameters()), size_of(statistics),
                      size_of(batches)});
  spread_values(state.weights, type, model.parameters());
  spread_values(state.statistics, type, statistics);
  copy_to(velocity, state.velocity);
  auto counts = torch::empty({count_values(batches)}, torch::kInt64);
  copy_to<std::int64_t>(counts, state.batches.view());
  spread(counts, batches);
}

} // namespace syncnorm::train
