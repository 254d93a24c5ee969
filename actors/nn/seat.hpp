#pragma once

#include "actors/nn/participant.hpp"
#include "syncnorm/nn/detail/replication_scope.hpp"
#include "syncnorm/replicable.hpp"

#include <cstdint>

namespace syncnorm::nn::detail {

/// Makes the seat of copy `copy_id` at the layer of `context`: the first copy
/// of each group spawns the group's master, the others register with it.
/// @param kind names the layer where its path is empty.
/// @throws error as `batch_norm_participant` and `callback_context`.
[[nodiscard]] participant_ptr make_seat(const replication_scope& scope,
                                        callback_context& context,
                                        std::int64_t copy_id, const char* kind);

} // namespace syncnorm::nn::detail
