#pragma once

#include "trainer/run/flat_array.hpp"

#include "syncnorm/compat.hpp"
#include "syncnorm/detail/raw_floats.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace syncnorm::train {

/// How many batches each batch-norm layer of a model has tracked: none of them
/// is negative when it comes from another process.
struct batch_counts {
  /// More layers than this are nobody's.
  static constexpr std::uint64_t max_size = std::uint64_t{1} << 16;

  std::vector<std::int64_t> values;

  [[nodiscard]] std::size_t size() const noexcept {
    return values.size();
  }

  /// Writes their number, then little-endian integers; returns whether that
  /// worked.
  template <class Sink>
  bool save(Sink& f) const {
    return detail::save_floats(f, std::span{values});
  }

  /// Reads what `save` has written; returns whether it is sound.
  template <class Source>
  bool load(Source& f) {
    std::vector<std::int64_t> read;
    if (!detail::load_floats(f, read, max_size)
        || std::ranges::any_of(read, [](auto x) { return x < 0; }))
      return false;
    values = std::move(read);
    return true;
  }

  friend bool operator==(const batch_counts&, const batch_counts&) = default;
};

template <class Inspector>
auto inspect(Inspector& f, batch_counts& x) {
  return detail::inspect_raw(f, x, "syncnorm::train::batch_counts");
}

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
  batch_counts batches;
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
