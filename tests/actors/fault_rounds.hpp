#pragma once

#include <cstdlib>
#include <string>

namespace syncnorm::test {

/// How many rounds with faults are run, unless the environment asks for fewer
/// or more.
inline int fault_rounds() {
  const auto* text = std::getenv("SYNCNORM_TEST_FAULTS");
  return text ? std::stoi(text) : 10'000;
}

} // namespace syncnorm::test
