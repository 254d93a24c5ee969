#pragma once

#include "round_arguments.hpp"

#include "syncnorm/moments.hpp"

#include <cstdint>
#include <span>

// How a forward round learns, wherever its messages lie.

namespace syncnorm::detail {

/// Whether the tree over the identifiers of `messages` is the tree over their
/// positions: consecutive identifiers from a multiple of a large enough power
/// of two on.
[[nodiscard]] bool is_row(std::span<const round_message> messages);

/// Batches tracked, including a batch of `count` elements.
[[nodiscard]] std::int64_t batches_after(const statistics_update& update,
                                         std::int64_t count);

/// @param batches as `batches_after` returns it.
[[nodiscard]] finalize_options
finalize_options_of(const statistics_update& update, std::int64_t batches);

/// Online, in host memory: merges a batch into all that was `seen` before.
/// @param batch the batch's moments; they become mean and inverse standard
/// deviation of all.
/// @param batches how many have been seen; goes up by this one if it has
/// elements.
void learn_online(const moments_view& batch, moments_view& seen,
                  std::int64_t& batches, double eps, eps_mode mode);

} // namespace syncnorm::detail
