#include "trainer/run/model_state.hpp"

#include "trainer/failure.hpp"

#include <fmt/format.h>

#include <string>

namespace syncnorm::train {

namespace {

std::string describe(const flat_array& x) {
  auto single = fmt::format("{} in float32", x.f32.size());
  auto wide = fmt::format("{} in float64", x.f64.size());
  if (x.f64.size() == 0)
    return single;
  return x.f32.size() == 0 ? wide : single + " and " + wide;
}

void require_size(const char* what, const flat_array& found, bool is_float64,
                  std::size_t size) {
  auto right = is_float64 ? found.f64.size() : found.f32.size();
  if (right != size || found.size() != size)
    throw failure{fmt::format("a model's state: expected {} {} in {}, found {}",
                              size, what, is_float64 ? "float64" : "float32",
                              describe(found))};
}

} // namespace

void require_fit(const model_state& state, const model_layout& layout) {
  if (state.fingerprint != layout.fingerprint)
    throw failure{fmt::format("a model's state: expected one of model {:016x}, "
                              "found one of {:016x}",
                              layout.fingerprint, state.fingerprint)};
  auto require = [&](const char* what, const flat_array& x, std::size_t size) {
    require_size(what, x, layout.is_float64, size);
  };
  require("weights", state.weights, layout.weights);
  require("velocities", state.velocity, layout.weights);
  require("statistics", state.statistics, layout.statistics);
  if (state.batches.size() != layout.batches)
    throw failure{fmt::format("a model's state: expected {} counts of batches, "
                              "found {}",
                              layout.batches, state.batches.size())};
  for (auto count : state.batches)
    if (count < 0)
      throw failure{fmt::format("a model's state: expected counts of batches "
                                "from 0 on, found {}",
                                count)};
}

std::string_view find_not_finite(const model_state& state) {
  if (!all_finite(state.weights))
    return "weights";
  if (!all_finite(state.velocity))
    return "velocities";
  return all_finite(state.statistics) ? "" : "statistics";
}

} // namespace syncnorm::train
