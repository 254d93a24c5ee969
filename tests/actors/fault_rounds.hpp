#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace syncnorm::test {

/// How many rounds with faults to run; the environment may ask for fewer or
/// more.
inline int fault_rounds() {
  const auto* text = std::getenv("SYNCNORM_TEST_FAULTS");
  return text ? std::stoi(text) : 10'000;
}

/// How many runs without threads: a tenth under a sanitizer, which takes some
/// fifty times as long for each.
inline int schedules() {
#if defined(SYNCNORM_SANITIZED)
  return fault_rounds() / 100;
#else
  return fault_rounds() / 10;
#endif
}

/// Checks a run for each seed from 1 on: `run` returns what was wrong, or
/// nothing.
template <class Run>
void check_seeds(int count, Run run) {
  for (int i = 1; i <= count; ++i) {
    std::string wrong = run(static_cast<std::uint32_t>(i));
    CHECK_MESSAGE(wrong.empty(), "seed " << i << ": " << wrong);
  }
}

} // namespace syncnorm::test
