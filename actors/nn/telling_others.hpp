#pragma once

#include "actors/nn/participant.hpp"

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace syncnorm::nn::detail {

/// What an exception says, without libtorch's stack trace.
inline std::string text_of(const std::exception& x) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&x);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : x.what();
}

/// Calls `f`, a step of a backward pass. If it throws and there is a `seat`,
/// the copies that wait for the seat's copy learn why first.
template <class F>
auto telling_others(const participant_ptr& seat, F f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::exception& x) {
    if (seat)
      seat->give_up(text_of(x));
    throw;
  }
}

} // namespace syncnorm::nn::detail
