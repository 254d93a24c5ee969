#pragma once

// The element formulas for scalars: CUDA kernels and tests.

#include "kernels/math.hpp"

namespace syncnorm::elements {

template <class Real>
SYNCNORM_HOST_DEVICE constexpr Real multiply_add(Real a, Real b, Real c) {
  return a * b + c;
}

} // namespace syncnorm::elements

#define SYNCNORM_ELEMENTS_NAMESPACE syncnorm::elements
#define SYNCNORM_ELEMENTS_FUNCTION SYNCNORM_HOST_DEVICE constexpr
#include "kernels/elements-inl.hpp"
#undef SYNCNORM_ELEMENTS_NAMESPACE
#undef SYNCNORM_ELEMENTS_FUNCTION
