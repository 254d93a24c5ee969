#pragma once

#include "trainer/run/flat_array.hpp"

#include "syncnorm/compat.hpp"
#include "syncnorm/shared_array.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace syncnorm::train {

/// All that training steps change in a replica, in the model's fixed order:
/// only numbers, whatever the device and the version of libtorch.
struct model_state {
  /// Of the model whose state this is; see `engine::fingerprint`.
  std::uint64_t fingerprint = 0;
  flat_array weights;
  /// The optimizer's velocity: as many values as weights.
  flat_array velocity;
  /// Running means and variances.
  flat_array statistics;
  /// How many batches each batch-norm layer has tracked.
  int64_array batches;
};

template <class Inspector>
auto inspect(Inspector& f, model_state& x) {
  return compat::inspect_object(f, x, "syncnorm::train::model_state",
                                compat::field("fingerprint", x.fingerprint),
                                compat::field("weights", x.weights),
                                compat::field("velocity", x.velocity),
                                compat::field("statistics", x.statistics),
                                compat::field("batches", x.batches));
}

/// The layout of a model's state.
struct model_layout {
  std::uint64_t fingerprint = 0;
  /// Whether weights and all values but counts are float64; else float32.
  bool is_float64 = false;
  std::size_t weights = 0;
  std::size_t statistics = 0;
  std::size_t batches = 0;
};

/// Checks all of `state` before any of it is used.
/// @throws failure with what was expected and found if `state` is of another
///         model than `layout`, in another type or of other sizes.
void require_fit(const model_state& state, const model_layout& layout);

/// Returns `"weights"`, `"velocities"` or `"statistics"`, the first that has
/// values that are not finite; empty if all are finite.
[[nodiscard]] std::string_view find_not_finite(const model_state& state);

} // namespace syncnorm::train
