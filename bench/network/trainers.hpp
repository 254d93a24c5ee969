#pragma once

#include "bench/support.hpp"

namespace syncnorm::bench {

/// Trains with four replicas, in one process and in two, and adds how many
/// samples a second they do. Does nothing where there is no trainer.
/// @throws std::runtime_error if they do not train the same model, bit for bit.
void compare_trainers(const options& given, report& out);

} // namespace syncnorm::bench
