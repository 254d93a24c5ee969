#pragma once

#include "syncnorm/nn/detail/participant.hpp"

#include <exception>

namespace syncnorm::nn::detail {

/// Calls `f`, a step of a backward pass. If it throws, the copies that wait for
/// that of `seat`, if there is one, learn why first.
template <class F>
auto telling_others(const participant_ptr& seat, F f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::exception& x) {
    if (seat)
      seat->give_up(x.what());
    throw;
  }
}

} // namespace syncnorm::nn::detail
