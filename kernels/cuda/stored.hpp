#pragma once

namespace syncnorm::cuda {

/// A partial result in memory: loaded and stored at once.
template <class State>
struct alignas(sizeof(State)) stored {
  State value;
};

} // namespace syncnorm::cuda
