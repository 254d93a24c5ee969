#include "trainer/plan/schedule.hpp"

#include <cmath>
#include <numbers>

namespace syncnorm::train {

double learning_rate(schedule_kind kind, double rate, std::uint64_t step,
                     std::uint64_t steps) {
  auto done = static_cast<double>(step) / static_cast<double>(steps);
  switch (kind) {
  case schedule_kind::constant:
    return rate;
  case schedule_kind::cosine:
    return rate * (1 + std::cos(std::numbers::pi * done)) / 2;
  case schedule_kind::step:
    return done < 0.5 ? rate : done < 0.75 ? rate / 10 : rate / 100;
  }
  return rate;
}

} // namespace syncnorm::train
