#pragma once

#include "bench/support.hpp"

#include <algorithm>

namespace syncnorm::bench {

/// How often each contestant takes its turn: a run takes seconds.
inline int trainer_rounds(const options& given) {
  return std::min(given.rounds, 5);
}

/// Trains with four replicas, in one process and in two, and adds their samples
/// per second. Does nothing where there is no trainer.
/// @throws std::runtime_error if a run of each does not train the same model,
///         bit for bit.
void compare_trainers(const options& given, report& out);

} // namespace syncnorm::bench
