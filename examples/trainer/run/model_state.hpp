#pragma once

#include "trainer/run/flat_array.hpp"

#include "syncnorm/compat.hpp"
#include "syncnorm/shared_array.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace syncnorm::train {

/// All that the steps of a training change in a replica, in the model's fixed
/// order: numbers alone, whatever the device and the version of libtorch.
struct model_state {
  /// Of the model that it is of; see `engine::fingerprint`.
  std::uint64_t fingerprint = 0;
  flat_array weights;
  /// The optimizer's, as many as weights.
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

/// What the state of a model is like.
struct model_layout {
  std::uint64_t fingerprint = 0;
  /// Of the weights and all that is not counted; else float32.
  bool is_float64 = false;
  std::size_t weights = 0;
  std::size_t statistics = 0;
  std::size_t batches = 0;
};

/// Looks at all of `state` before any of it is used.
/// @throws failure with what was expected and found if `state` is of another
///         model than `layout`, in another type or of other sizes.
void require_fit(const model_state& state, const model_layout& layout);

/// Returns `"weights"`, `"velocities"` or `"statistics"`, the first of which
/// some are not finite; empty if all are.
[[nodiscard]] std::string_view find_not_finite(const model_state& state);

} // namespace syncnorm::train
